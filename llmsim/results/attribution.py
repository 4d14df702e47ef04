"""Where the time went: of each request, from the iterations of its replica, and of the run, in a sentence.

A request's end-to-end latency is cut where something changes hands. Each part is measured by itself, in
integer nanoseconds; that they add up is checked, not arranged.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ScenarioError, SimulationError
from llmsim.results.record import Columns, RunRecord
from llmsim.units import NS_PER_S

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS: dict[str, str] = {
    "frontend_s": "from its arrival to the replica's queue: API, routing, transfer, attempts that were given up",
    "waiting_s": "in the replica's queue, until an iteration first computed any of it",
    "prefill_s": "from then until its first token is out, whatever else those iterations computed",
    "preempted_s": "from losing its blocks until the next token after it",
    "decode_s": "between its tokens, the part that decoding took",
    "others_prefill_s": "between its tokens, the part by which prefills of others made the iterations longer",
}
"""The parts of an end-to-end latency, in order, with their meaning."""

RESOURCES = {
    "compute": "compute",
    "hbm": "HBM bandwidth",
    "link": "link bandwidth",
    "overhead": "launch and host overhead",
}
CAUSES = {
    "slots": "all max_num_seqs slots are taken",
    "kv": "the KV blocks are taken",
    "budget": "max_num_batched_tokens is spent",
    "preempted": "requests were preempted",
    "delay": "the scheduler holds prompts back",
}
QUEUE_SHARE = 0.05
"""Share of the requests in the system that wait, from which on ``what_binds`` speaks of a queue."""


def attribute(record: RunRecord, decode_only_s: Floats | None = None) -> Columns:
    """The parts of every finished request's latency: ``request_id``, the columns of ``PARTS`` and ``e2e_s``.

    ``decode_only_s`` is how long each iteration of the record would have taken with its decodes alone, shape
    ``(iterations,)``, seconds; the rest of an iteration with prefill tokens is the prefill's. Without it the
    iteration is split in proportion to its tokens, which charges prefills too much while decodes are bound by
    memory. Times are whole nanoseconds and the parts sum to ``e2e_s`` to the nanosecond.

    Raises ``ScenarioError`` for a record without iterations, ``SimulationError`` when the sum is wrong.
    """
    if record.facts.record != "full":
        raise ScenarioError(
            f'run.record = "{record.facts.record}": attribution reads every iteration; allowed is "full"'
        )
    done = record.requests["outcome"] == "finished"
    request_id, replica = record.requests["request_id"][done], record.requests["replica"][done]
    moments = ("arrival", "queued", "first_scheduled", "first_token", "finish")
    time = {name: nanoseconds(record.requests[f"{name}_s"][done]) for name in moments}
    stalls = stalls_of(record.preemptions, request_id, time["finish"])
    decode, others_prefill = _split_decode_phase(record, replica, time, stalls, decode_only_s)
    prefill = time["first_token"] - time["first_scheduled"]
    stalled_prefill = np.minimum(stalls.end, time["first_token"][stalls.row]) - stalls.start
    np.subtract.at(prefill, stalls.row, np.maximum(stalled_prefill, 0))
    preempted = np.zeros_like(prefill)
    np.add.at(preempted, stalls.row, stalls.end - stalls.start)
    frontend, waiting = time["queued"] - time["arrival"], time["first_scheduled"] - time["queued"]
    parts = dict(zip(PARTS, (frontend, waiting, prefill, preempted, decode, others_prefill), strict=True))
    e2e = time["finish"] - time["arrival"]
    check_sum(parts, e2e, request_id)
    seconds = {name: part / NS_PER_S for name, part in (parts | {"e2e_s": e2e}).items()}
    return {"request_id": request_id, **seconds}


def what_binds(record: RunRecord, summary: dict[str, Any]) -> str:
    """One sentence: the resource that took most of the replicas' time, at which batch, and why requests wait.

    What waiting is due to is known from a record of level ``full`` only.
    """
    busy = {name: summary["bound"][name] for name in RESOURCES}
    if not any(busy.values()):
        return "Nothing ran: the replicas were idle."
    name = max(busy, key=lambda resource: busy[resource])
    idle = summary["bound"]["idle"]
    if idle > busy[name]:
        of_busy = _percent(busy[name] / (1 - idle))
        clauses = [
            f"idle: {_percent(idle)} of replica time",
            f"{RESOURCES[name]} takes {of_busy} of the rest",
        ]
    else:
        clauses = [f"{RESOURCES[name]}: {_percent(busy[name])} of replica time"]
    iterations = _measured(record)
    batch = _mean(iterations["decode_tokens"], iterations["end_s"] - iterations["start_s"])
    if batch:
        clauses.append(f"decode at mean batch {batch:,.3g}")
    waiting, running = summary["waiting"]["mean"], summary["running"]["mean"]
    if waiting > QUEUE_SHARE * (waiting + running):
        clauses.append(f"{waiting:,.3g} requests wait on average{_cause_of_waiting(iterations)}")
    sentence = ", ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}."


class Stalls(NamedTuple):
    """Times in which a finished request was preempted: its row, start and end (ns), without overlaps."""

    row: Ints
    start: Ints
    end: Ints
    resumed: Ints
    """When it was admitted again, at the end if never."""


class _Timeline:
    """A replica's time, cut at the ends of its iterations, and how much of it prefills took up to any moment.

    Between the ends of two iterations the time is the later one's: in asynchronous or pipelined execution
    the next iteration starts before the last one ended.
    """

    __slots__ = ("_points", "_prefill", "_shares")

    def __init__(self, start_ns: Ints, end_ns: Ints, prefill_shares: Floats) -> None:
        order = np.argsort(end_ns, kind="stable")
        self._points = np.concatenate((start_ns[:1], end_ns[order]))
        self._shares = prefill_shares[order]
        self._prefill = np.zeros(len(self._points), np.int64)
        np.cumsum(_part(np.diff(self._points), self._shares), out=self._prefill[1:])

    def until(self, time_ns: Ints) -> tuple[Ints, Ints]:
        """Nanoseconds of decode and of prefill from the replica's first start until each moment."""
        time_ns = np.clip(time_ns, self._points[0], self._points[-1])
        at = np.minimum(np.searchsorted(self._points, time_ns, side="right") - 1, len(self._shares) - 1)
        prefill = self._prefill[at] + _part(time_ns - self._points[at], self._shares[at])
        return time_ns - self._points[0] - prefill, prefill


def _split_decode_phase(
    record: RunRecord, replica: Ints, time: dict[str, Ints], stalls: Stalls, decode_only_s: Floats | None
) -> tuple[Ints, Ints]:
    """Nanoseconds of decode and of others' prefill from first token to finish, without the stalls."""
    iterations = record.iterations
    shares = _prefill_shares(iterations, decode_only_s)
    first_token, count = time["first_token"], len(replica)
    row = np.concatenate((np.arange(count), stalls.row))
    start = np.concatenate((first_token, np.maximum(stalls.start, first_token[stalls.row])))
    end = np.concatenate((time["finish"], np.maximum(stalls.end, first_token[stalls.row])))
    sign = np.where(np.arange(len(row)) < count, 1, -1)
    decode, others_prefill = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for number in np.unique(replica):
        own, here = iterations["replica"] == number, replica[row] == number
        timeline = _Timeline(
            nanoseconds(iterations["start_s"][own]), nanoseconds(iterations["end_s"][own]), shares[own]
        )
        for total, before, after in zip(
            (decode, others_prefill), timeline.until(start[here]), timeline.until(end[here]), strict=True
        ):
            np.add.at(total, row[here], sign[here] * (after - before))
    return decode, others_prefill


def _prefill_shares(iterations: Columns, decode_only_s: Floats | None) -> Floats:
    """The share of each iteration's duration that is due to its prefill tokens."""
    prefill, decode = iterations["prefill_tokens"], iterations["decode_tokens"]
    if decode_only_s is None:
        return np.asarray(prefill / np.maximum(prefill + decode, 1))
    duration_s = np.maximum(iterations["end_s"] - iterations["start_s"], 1 / NS_PER_S)
    return np.where(prefill > 0, np.clip(1 - decode_only_s / duration_s, 0.0, 1.0), 0.0)


def stalls_of(preemptions: Columns, request_ids: Ints, finish_ns: Ints) -> Stalls:
    """The preemptions of finished requests. One that is preempted again before it caught up ends there."""
    of_finished = np.isin(preemptions["request_id"], request_ids)
    request, start_s = preemptions["request_id"][of_finished], preemptions["preempted_s"][of_finished]
    order = np.lexsort((start_s, request))
    row = np.argsort(request_ids)[np.searchsorted(np.sort(request_ids), request[order])]
    start, caught_up_s = nanoseconds(start_s[order]), preemptions["caught_up_s"][of_finished][order]
    end = np.where(np.isnan(caught_up_s), finish_ns[row], nanoseconds(np.nan_to_num(caught_up_s)))
    again = row[1:] == row[:-1]
    end[:-1][again] = np.minimum(end[:-1], start[1:])[again]
    resumed_s = preemptions["resumed_s"][of_finished][order]
    resumed = np.where(np.isnan(resumed_s), end, nanoseconds(np.nan_to_num(resumed_s)))
    return Stalls(row, start, end, np.clip(resumed, start, end))


def check_sum(parts: dict[str, Ints], e2e: Ints, request_ids: Ints) -> None:
    wrong = np.flatnonzero(sum(parts.values()) != e2e)
    if len(wrong):
        row = wrong[0]
        told = " + ".join(f"{name} {part[row] / NS_PER_S}" for name, part in parts.items())
        raise SimulationError(f"request {request_ids[row]}: {told} is not its e2e {e2e[row] / NS_PER_S}")


def _measured(record: RunRecord) -> Columns:
    inside = record.iterations["end_s"] > record.facts.window_start_s
    return {name: column[inside] for name, column in record.iterations.items()}


def _cause_of_waiting(iterations: Columns) -> str:
    """Why admission stopped for most of the time with a queue; empty when no iteration tells."""
    queue = iterations["waiting"] > 0
    duration_s = (iterations["end_s"] - iterations["start_s"])[queue]
    stopped_by = iterations["stopped_by"][queue]
    spent_s = {cause: float(duration_s[stopped_by == cause].sum()) for cause in CAUSES}
    cause = max(spent_s, key=lambda name: spent_s[name])
    if not spent_s[cause]:
        return ""
    share = _percent(spent_s[cause] / duration_s.sum())
    return f" because {CAUSES[cause]} ({share} of the time with a queue)"


def _mean(batch: Ints, duration_s: Floats) -> float:
    """Mean over the time in which there is a batch; 0 without one."""
    weight = duration_s * (batch > 0)
    return float((batch * weight).sum() / weight.sum()) if weight.any() else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _part(length_ns: Ints, share: Floats) -> Ints:
    return np.rint(length_ns * share).astype(np.int64)


def nanoseconds(seconds: Floats) -> Ints:
    return np.rint(seconds * NS_PER_S).astype(np.int64)
