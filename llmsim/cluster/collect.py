"""From the integers of a finished run to its ``RunRecord``: seconds, accounts of the work, and sums over the window."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmsim.cost.base import Account, Batch, CostModel
from llmsim.engine.plan import STOPPED_BY
from llmsim.results.record import BOUND_COLUMNS, PREEMPTION_COLUMNS, Columns, Totals
from llmsim.results.recorder import Recorder
from llmsim.units import NS_PER_S
from llmsim.workload.table import RequestTable

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_BOUNDS = ("compute", "hbm", "link", "overhead")


@dataclass(frozen=True, slots=True)
class Stage:
    """What is needed to read the rows of one replica."""

    pool: str
    cost: CostModel
    gpus: int
    kv_blocks: int


def request_columns(recorder: Recorder, table: RequestTable, stages: list[Stage]) -> Columns:
    """The request table of a result, see ``REQUEST_COLUMNS``."""
    integers = {name: np.frombuffer(column, np.int64) for name, column in recorder.requests.items()}
    sent = np.frombuffer(recorder.arrival_ns, np.int64)
    sent = np.where((sent < 0) & (table.after < 0), table.arrival_ns, sent)
    replica = integers["replica"]
    pools = np.array([*(stage.pool for stage in stages), ""], dtype=object)
    outcome, reason = recorder.endings()
    return {
        "request_id": np.arange(len(table)),
        "client": np.array(table.client_names, dtype=object)[table.client],
        "session": table.session,
        "pool": pools[replica],
        "replica": replica,
        "arrival_s": _seconds(sent),
        "queued_s": _seconds(integers["queued_ns"]),
        "first_scheduled_s": _seconds(integers["first_scheduled_ns"]),
        "first_token_s": _seconds(integers["first_token_ns"]),
        "finish_s": _seconds(integers["finish_ns"]),
        "prompt_tokens": table.prompt_tokens,
        "output_tokens": np.maximum(integers["output_tokens"], 0),
        "cached_tokens": np.maximum(integers["cached_tokens"], 0),
        "preemptions": np.maximum(integers["preemptions"], 0),
        "recomputed_tokens": np.maximum(integers["recomputed_tokens"], 0),
        "max_itl_s": _seconds(integers["max_itl_ns"]),
        "priority": table.priority,
        "outcome": outcome,
        "reason": reason,
    }


def iteration_columns(rows: dict[str, Ints], stages: list[Stage]) -> Columns:
    """The iteration table of a result with its accounts, see ``ITERATION_COLUMNS`` and ``BOUND_COLUMNS``."""
    account = _account(rows, stages)
    parts = np.stack(account[3:])
    largest = np.array(_BOUNDS, dtype=object)[np.argmax(parts, axis=0)] if parts.size else np.zeros(0, object)
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
        "stopped_by": np.array(STOPPED_BY, dtype=object)[rows["stopped_by"]],
        "flop": account.flop,
        "hbm_bytes": account.hbm_bytes,
        "link_bytes": account.link_bytes,
        "bound": largest,
        **dict(zip(BOUND_COLUMNS, parts, strict=True)),
    }


def preemption_columns(recorder: Recorder) -> Columns:
    """The preemption table of a result, see ``PREEMPTION_COLUMNS``."""
    rows = recorder.preemption_rows()
    columns = [rows[:, 0], rows[:, 1], *(_seconds(rows[:, i]) for i in (2, 3, 4))]
    return dict(zip(PREEMPTION_COLUMNS, columns, strict=True))


def sum_up(
    recorder: Recorder,
    rows: dict[str, Ints],
    iterations: Columns,
    stages: list[Stage],
    start_ns: int,
    end_ns: int,
) -> Totals:
    """Sums over the measured window from ``start_ns`` to ``end_ns``; what spans an edge counts by its share."""
    duration = max(end_ns - start_ns, 0)
    inside = np.clip(rows["end_ns"], start_ns, end_ns) - np.clip(rows["start_ns"], start_ns, end_ns)
    share = inside / np.maximum(rows["end_ns"] - rows["start_ns"], 1)
    gpus = np.array([stage.gpus for stage in stages], np.int64)[rows["replica"]]
    bound_s = {bound: float(iterations[column] @ share) for bound, column in zip(_BOUNDS, BOUND_COLUMNS, strict=True)}
    busy_s = sum(bound_s.values())
    values, counts = _gaps(recorder, rows, start_ns, end_ns)
    blocks = np.array([stage.kv_blocks for stage in stages], np.int64)[rows["replica"]]
    usage = rows["kv_blocks"] / blocks
    running, waiting = _census(recorder, start_ns, end_ns)
    return Totals(
        flop=float((iterations["flop"] * gpus) @ share),
        hbm_bytes=float((iterations["hbm_bytes"] * gpus) @ share),
        link_bytes=float((iterations["link_bytes"] * gpus) @ share),
        bound_s={**bound_s, "idle": max(duration / NS_PER_S * len(stages) - busy_s, 0.0)},
        itl_values_s=values / NS_PER_S,
        itl_counts=counts,
        kv_usage_mean=float(usage @ inside) / (duration * len(stages)) if duration else 0.0,
        kv_usage_max=float(usage[inside > 0].max(initial=0.0)),
        running_mean=running[0],
        running_max=running[1],
        waiting_mean=waiting[0],
        waiting_max=waiting[1],
    )


def last_event_ns(recorder: Recorder, rows: dict[str, Ints]) -> int:
    """The last arrival or end of an iteration."""
    arrivals = np.frombuffer(recorder.arrival_ns, np.int64)
    return max(int(arrivals.max(initial=0)), int(rows["end_ns"].max(initial=0)))


def _account(rows: dict[str, Ints], stages: list[Stage]) -> Account:
    fields = [rows["sampled_rows" if name == "sampled" else name] for name in Batch._fields]
    columns = np.zeros((len(Account._fields), len(rows["replica"])))
    for number, stage in enumerate(stages):
        mine = rows["replica"] == number
        if mine.any():
            columns[:, mine] = np.stack(stage.cost.account(Batch(*(field[mine] for field in fields))))
    return Account(*columns)


def _gaps(recorder: Recorder, rows: dict[str, Ints], start_ns: int, end_ns: int) -> tuple[Ints, Ints]:
    """Distinct gaps between tokens that ended in the window, ascending, and how often each occurred."""
    order = np.lexsort((rows["iteration"], rows["replica"]))
    ends, replica = rows["end_ns"][order], rows["replica"][order]
    gaps = np.diff(ends, prepend=0)
    regular = np.where(np.diff(replica, prepend=-1) == 0, rows["regular_gaps"][order], 0)
    stall_ends, stall_gaps = recorder.stalls()
    ends = np.concatenate([ends, stall_ends])
    gaps = np.concatenate([gaps, stall_gaps])
    counts = np.concatenate([regular, np.ones(len(stall_gaps), np.int64)])
    kept = (counts > 0) & (ends > start_ns) & (ends <= end_ns)
    values, index = np.unique(gaps[kept], return_inverse=True)
    return values, np.bincount(index, weights=counts[kept], minlength=len(values)).astype(np.int64)


def _census(recorder: Recorder, start_ns: int, end_ns: int) -> tuple[tuple[float, int], tuple[float, int]]:
    """Time-weighted mean, and maximum over any time, of the requests running and waiting."""
    times = {name: np.frombuffer(recorder.requests[f"{name}_ns"], np.int64) for name in ("queued", "finish")}
    queued = times["queued"][times["queued"] >= 0]
    ended = times["finish"]
    started = np.frombuffer(recorder.requests["first_scheduled_ns"], np.int64)
    preempted, resumed = recorder.preemption_rows()[:, 2], recorder.preemption_rows()[:, 3]
    started, ended, resumed = started[started >= 0], ended[ended >= 0], resumed[resumed >= 0]
    waiting = _level([(queued, 1), (started, -1), (preempted, 1), (resumed, -1)], start_ns, end_ns)
    running = _level([(started, 1), (ended, -1), (preempted, -1), (resumed, 1)], start_ns, end_ns)
    return running, waiting


def _level(changes: list[tuple[Ints, int]], start_ns: int, end_ns: int) -> tuple[float, int]:
    """Mean and maximum in the window of a number that changes by the given amounts at the given times."""
    if end_ns <= start_ns:
        return 0.0, 0
    times = np.concatenate([*(each for each, _ in changes), [start_ns, end_ns]])
    steps = np.concatenate([*(np.full(len(each), amount) for each, amount in changes), [0, 0]])
    order = np.argsort(times, kind="stable")
    times = np.clip(times[order], start_ns, end_ns)
    level = np.cumsum(steps[order])[:-1]
    lasting = np.diff(times)
    mean = float(level @ lasting) / (end_ns - start_ns)
    return mean, int(level[lasting > 0].max(initial=0))


def _seconds(times_ns: Ints) -> Floats:
    """Nanoseconds as seconds; -1, a time that never came, as NaN."""
    return np.where(times_ns < 0, np.nan, times_ns / NS_PER_S)
