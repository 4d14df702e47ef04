"""From the integers of a run to its ``RunRecord``: seconds, accounts of the work, and sums over the measured window.

At record level ``full`` every iteration is kept and accounted for. Otherwise blocks of rows are summed up as they come,
and a leap is accounted for as so many times its mean iteration, which is exact for what is linear in the context, as
FLOPs and bytes are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmsim.cost.base import Account, Batch, CostModel
from llmsim.engine.plan import STOPPED_BY
from llmsim.results.bins import LogBins
from llmsim.results.metrics import Measured, Sample, add_up, measure
from llmsim.results.record import (
    BOUND_COLUMNS,
    ITERATION_COLUMNS,
    PREEMPTION_COLUMNS,
    REQUEST_COLUMNS,
    Columns,
    Totals,
)
from llmsim.results.recorder import NEVER_NS, REQUEST_FIELDS, Recorder, Rows, ends_and_gaps_ns, numbers_of, spread
from llmsim.units import NS_PER_S
from llmsim.workload.table import RequestTable

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_BOUNDS = tuple(name.removesuffix("_s") for name in BOUND_COLUMNS)
_AT_ONCE = 1 << 14
"""Iterations accounted for at a time: their columns fit into a processor's cache."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What is needed to read the rows of one replica."""

    pool: str
    cost: CostModel
    gpus: int
    kv_blocks: int


class Collector:
    """Takes what a recorder hands over, and gives what a ``RunRecord`` is made of."""

    def __init__(
        self,
        recorder: Recorder,
        table: RequestTable,
        stages: list[Stage],
        level: str,
        window_ns: tuple[int, int | None],
        slo: dict[str, float],
    ) -> None:
        self._recorder = recorder
        self._table = table
        self._stages = stages
        self._level = level
        self._start_ns, horizon_ns = window_ns
        self._end_ns = NEVER_NS if horizon_ns is None else horizon_ns
        self._open = horizon_ns is None
        self._slo = slo
        self._last_ns = 0
        self._sums = np.zeros(len(Account._fields))
        self._kv_area = 0.0
        self._kv_usage_max = 0.0
        self._gaps = LogBins()
        self._exact_gaps: tuple[Floats, Ints] | None = None
        self._measured: Measured | None = None
        self._latencies: dict[str, LogBins] = {}
        self.iterations = _empty(ITERATION_COLUMNS, BOUND_COLUMNS)
        self.requests = _empty(REQUEST_COLUMNS)
        recorder.on_iterations = self._take_all if level == "full" else self._take_block
        recorder.on_requests = self._take_ended if level == "summary" else self._take_requests
        recorder.census.start(self._start_ns)
        recorder.census.end_ns = self._end_ns

    def finish(self) -> tuple[Totals, int]:
        """Take what is left; returns the totals and the end of the window in nanoseconds."""
        self._recorder.flush()
        self._recorder.flush_requests()
        end_ns = max(self._last_ns, self._start_ns) if self._open else self._end_ns
        self._recorder.census.end_ns = end_ns
        self._recorder.census.advance(end_ns)
        return self._totals(end_ns), end_ns

    def measured(self, window_end_ns: int) -> Measured:
        """What the summary needs of the requests."""
        if self._measured is not None:
            samples = {name: Sample(*bins.sample()) for name, bins in self._latencies.items()}
            return replace(self._measured, samples=samples)
        return measure(self.requests, self._start_ns / NS_PER_S, window_end_ns / NS_PER_S, self._slo)

    def preemptions(self) -> Columns:
        """The preemption table of a result, see ``PREEMPTION_COLUMNS``."""
        rows = self._recorder.preemptions()
        columns = [rows[:, 0], rows[:, 1], *(_seconds(rows[:, i]) for i in (2, 3, 4))]
        return dict(zip(PREEMPTION_COLUMNS, columns, strict=True))

    def _take_all(self, rows: Rows) -> None:
        """Every iteration, at the end of a run of level ``full``."""
        wide = spread(rows)
        if len(self._stages) > 1:
            order = np.lexsort((wide["replica"], wide["start_ns"]))
            wide = {name: column[order] for name, column in wide.items()}
        account = self._account(wide)
        self.iterations = _iteration_columns(wide, account)
        self._add_work(wide, account)
        self._add_time(wide)
        gaps, counts = self._gaps_in_window(wide)
        values, index = np.unique(gaps, return_inverse=True)
        self._exact_gaps = values / NS_PER_S, np.bincount(index, counts, len(values)).astype(np.int64)

    def _take_block(self, rows: Rows) -> None:
        """A block of rows, to be summed up and forgotten."""
        columns = rows.columns
        self._add_work(columns, self._account_of_rows(columns))
        self._add_time(columns)
        gaps, counts = self._gaps_in_window(_gaps_of(columns))
        self._gaps.add(gaps / NS_PER_S, counts)

    def _take_requests(self, ended: Ints) -> None:
        self.requests = self._request_columns(ended[np.argsort(ended[:, 0], kind="stable")])

    def _take_ended(self, ended: Ints) -> None:
        columns = self._request_columns(ended)
        block = measure(columns, self._start_ns / NS_PER_S, self._end_ns / NS_PER_S, self._slo)
        self._measured = block if self._measured is None else add_up(self._measured, block)
        for name, sample in block.samples.items():
            self._latencies.setdefault(name, LogBins()).add(*sample)

    def _request_columns(self, ended: Ints) -> Columns:
        """Rows of the request table of a result, see ``REQUEST_COLUMNS``."""
        table, rows = self._table, ended[:, 0]
        outcome, reason = self._recorder.kinds()[ended[:, 1]].T
        fields = dict(zip(REQUEST_FIELDS, ended[:, 2:].T, strict=True))
        came_ns = np.maximum(fields["arrival_ns"], fields["queued_ns"])
        self._last_ns = max(self._last_ns, int(came_ns.max(initial=0)))
        sent = fields["arrival_ns"]
        sent = np.where((sent < 0) & (table.after[rows] < 0), table.arrival_ns[rows], sent)
        pools = np.array([*(stage.pool for stage in self._stages), ""], dtype=object)
        return {
            "request_id": rows,
            "client": np.array(table.client_names, dtype=object)[table.client[rows]],
            "session": table.session[rows],
            "pool": pools[fields["replica"]],
            "replica": fields["replica"],
            "arrival_s": _seconds(sent),
            "queued_s": _seconds(fields["queued_ns"]),
            "first_scheduled_s": _seconds(fields["first_scheduled_ns"]),
            "first_token_s": _seconds(fields["first_token_ns"]),
            "finish_s": _seconds(fields["finish_ns"]),
            "prompt_tokens": table.prompt_tokens[rows],
            "output_tokens": fields["output_tokens"],
            "cached_tokens": fields["cached_tokens"],
            "preemptions": fields["preemptions"],
            "recomputed_tokens": fields["recomputed_tokens"],
            "max_itl_s": _seconds(fields["max_itl_ns"]),
            "attempts": fields["attempts"],
            "priority": table.priority[rows],
            "outcome": outcome,
            "reason": reason,
        }

    def _account(self, columns: Mapping[str, NDArray[Any]]) -> Account:
        """What each of the given iterations did, by its replica's cost model."""
        fields = [columns["sampled_rows" if name == "sampled" else name] for name in Batch._fields]
        accounts = np.zeros((len(Account._fields), len(columns["replica"])))
        for number, stage in enumerate(self._stages):
            for rows in self._rows_of(number, columns["replica"]):
                account = stage.cost.account(Batch(*(field[rows] for field in fields)))
                for work, column in zip(account, accounts, strict=True):
                    column[rows] = work
        return Account(*accounts)

    def _rows_of(self, number: int, replicas: Ints) -> Iterator[slice | Ints]:
        """The rows of a replica, not too many at once."""
        mine = np.flatnonzero(replicas == number) if len(self._stages) > 1 else None
        for begin in range(0, len(replicas if mine is None else mine), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            yield some if mine is None else mine[some]

    def _account_of_rows(self, columns: dict[str, Ints]) -> Account:
        """What each row's iterations did together: as often what they do on average, as work and time grow evenly."""
        iterations = columns["iterations"]
        number = (iterations - 1) / 2
        average = {
            **columns,
            "decode_context_tokens": columns["decode_context_tokens"] + columns["decode_sequences"] * number,
            "decode_window_tokens": columns["decode_window_tokens"] + columns["growing"] * number,
        }
        return Account(*(each * iterations for each in self._account(average)))

    def _add_work(self, columns: dict[str, Ints], account: Account) -> None:
        """Add rows' work; what spans an edge of the window counts by its share of time."""
        share = self._inside(columns) / np.maximum(columns["end_ns"] - columns["start_ns"], 1)
        gpus = np.array([stage.gpus for stage in self._stages], np.int64)[columns["replica"]]
        # Not as matrix products: those may sum in another order on another machine, and start threads.
        for number, work in enumerate(account):
            self._sums[number] += float((work * (share * gpus if number < 3 else share)).sum())
        self._last_ns = max(self._last_ns, int(columns["end_ns"].max(initial=0)))

    def _add_time(self, columns: dict[str, Ints]) -> None:
        """Add up KV usage; that of a row's iterations is taken to grow evenly."""
        inside = self._inside(columns)
        blocks = np.array([stage.kv_blocks for stage in self._stages], np.int64)[columns["replica"]]
        first = last = columns["kv_blocks"]
        if "iterations" in columns:
            last = np.where(columns["iterations"] > 1, columns["kv_blocks_after"], first)
        self._kv_area += float(((first + last) / (2 * blocks) * inside).sum())
        most = np.maximum(first, last) / blocks
        self._kv_usage_max = max(self._kv_usage_max, float(most[inside > 0].max(initial=0.0)))

    def _inside(self, columns: dict[str, Ints]) -> Ints:
        """How long each row lasts within the window."""
        start, end = self._start_ns, self._end_ns
        return np.clip(columns["end_ns"], start, end) - np.clip(columns["start_ns"], start, end)

    def _gaps_in_window(self, wide: dict[str, Ints]) -> tuple[Ints, Ints]:
        """Gaps between tokens that ended in the window, and how often each occurred."""
        stall_ends, stall_gaps = self._recorder.take_stalls()
        ends = np.concatenate([wide["end_ns"], stall_ends])
        gaps = np.concatenate([wide["gap_ns"], stall_gaps])
        counts = np.concatenate([wide["regular_gaps"], np.ones(len(stall_gaps), np.int64)])
        kept = (counts > 0) & (ends > self._start_ns) & (ends <= self._end_ns)
        return gaps[kept], counts[kept]

    def _totals(self, end_ns: int) -> Totals:
        duration_ns = max(end_ns - self._start_ns, 0)
        replica_s = duration_ns / NS_PER_S * len(self._stages)
        bound_s = dict(zip(_BOUNDS, self._sums[3:].tolist(), strict=True))
        census = self._recorder.census
        values, counts = self._gaps.sample() if self._exact_gaps is None else self._exact_gaps
        return Totals(
            flop=float(self._sums[0]),
            hbm_bytes=float(self._sums[1]),
            link_bytes=float(self._sums[2]),
            bound_s={**bound_s, "idle": max(replica_s - sum(bound_s.values()), 0.0)},
            itl_values_s=values,
            itl_counts=counts,
            kv_usage_mean=self._kv_area / (duration_ns * len(self._stages)) if duration_ns else 0.0,
            kv_usage_max=self._kv_usage_max,
            running_mean=census.running_ns / duration_ns if duration_ns else 0.0,
            running_max=census.running_max,
            waiting_mean=census.waiting_ns / duration_ns if duration_ns else 0.0,
            waiting_max=census.waiting_max,
        )


def _gaps_of(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Gap and end of every iteration, and how many sequences waited through the gap."""
    end_ns, gap_ns = ends_and_gaps_ns(columns, numbers_of(columns))
    return {
        "end_ns": end_ns,
        "gap_ns": gap_ns,
        "regular_gaps": np.repeat(columns["regular_gaps"], columns["iterations"]),
    }


def _iteration_columns(rows: dict[str, Ints], account: Account) -> Columns:
    """The iteration table of a result with its accounts, see ``ITERATION_COLUMNS`` and ``BOUND_COLUMNS``."""
    return {
        "replica": rows["replica"],
        "iteration": rows["iteration"],
        "start_s": rows["start_ns"] / NS_PER_S,
        "end_s": rows["end_ns"] / NS_PER_S,
        "prefill_tokens": rows["prefill_tokens"],
        "decode_tokens": rows["decode_sequences"],
        "sampled": rows["sampled"],
        "context_tokens": rows["prefill_context_tokens"] + rows["decode_context_tokens"],
        "running": rows["running"],
        "waiting": rows["waiting"],
        "kv_blocks": rows["kv_blocks"],
        "preempted": rows["preempted"],
        "cached_tokens": rows["cached_tokens"],
        "stopped_by": np.array(list(STOPPED_BY), dtype=object)[rows["stopped_by"]],
        "flop": account.flop,
        "hbm_bytes": account.hbm_bytes,
        "link_bytes": account.link_bytes,
        "bound": np.array(_BOUNDS, dtype=object)[_largest(account[3:])],
        **dict(zip(BOUND_COLUMNS, account[3:], strict=True)),
    }


def _largest(parts: Sequence[Floats]) -> Ints:
    """The number of the largest of the parts, the first of several: ``np.argmax`` along them in a tenth of its time."""
    number, most = np.zeros(len(parts[0]), np.int64), parts[0]
    for other, part in enumerate(parts[1:], 1):
        number[part > most] = other
        most = np.maximum(most, part)
    return number


def _empty(*columns: Iterable[str]) -> Columns:
    """No rows, but every column."""
    texts = {"client", "pool", "outcome", "reason", "stopped_by", "bound"}
    return {
        name: np.zeros(0, object if name in texts else np.float64 if name.endswith("_s") else np.int64)
        for names in columns
        for name in names
    }


def _seconds(times_ns: Ints) -> Floats:
    """Nanoseconds as seconds; -1, a time that never came, as NaN."""
    return np.where(times_ns < 0, np.nan, times_ns / NS_PER_S)
