"""Where the time of each request went, part by part down to the resource; sums exactly to what is explained.

Finer than ``attribution``, on the same cuts: a request's latency is cut where something changes hands, its wait where
the scheduler said why, and its decode by what the iterations spent their time on. Every part is measured by itself,
in integer nanoseconds: an iteration's are cut at rounded cumulative shares, so that any stretch of time is the sum of
its parts, and that all of a request's add up is checked.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ScenarioError
from llmsim.results.attribution import Floats, Ints, Stalls, check_sum, nanoseconds, stalls_of
from llmsim.results.record import BOUND_COLUMNS, Columns, RunRecord
from llmsim.units import NS_PER_S

COMPONENTS: dict[str, str] = {
    "frontend_s": "from its arrival to the replica's queue: API server, routing, transfer",
    "queue_slots_s": "queued while all max_num_seqs slots were taken",
    "queue_kv_s": "queued while the KV blocks were taken, or requests were preempted for them",
    "queue_budget_s": "queued while max_num_batched_tokens was spent",
    "queue_delay_s": "queued while the scheduler held prompts back (scheduler_delay_factor)",
    "queue_boundary_s": "queued until the iteration in flight ended and the scheduler looked again",
    "prefill_s": "from then until its first token is out, whatever else those iterations computed",
    "preempted_s": "from losing its blocks until it was admitted again",
    "recompute_s": "from then until its next token: computing again what was lost",
    "decode_hbm_s": "between its tokens, decoding, on HBM bandwidth",
    "decode_compute_s": "between its tokens, decoding, on arithmetic",
    "decode_link_s": "between its tokens, decoding, on links",
    "decode_overhead_s": "between its tokens, decoding, on launches and the host",
    "others_prefill_s": "between its tokens, the part by which prefills of others made the iterations longer",
}
"""The components of a latency, in order, with their meaning."""

QUEUE = ("queue_slots_s", "queue_kv_s", "queue_budget_s", "queue_delay_s", "queue_boundary_s")
_CAUSE = {"slots": 0, "kv": 1, "preempted": 1, "budget": 2, "delay": 3, "empty": 4}
DECODE = ("decode_compute_s", "decode_hbm_s", "decode_link_s", "decode_overhead_s", "others_prefill_s")
"""In the order of ``BOUND_COLUMNS``."""

Metric = Literal["ttft", "e2e", "tpot"]


def breakdown(record: RunRecord, metric: Metric = "e2e") -> Columns:
    """The components of a metric of every finished request: ``request_id``, ``COMPONENTS``, and ``total_s``.

    ``ttft`` ends at the first token. ``tpot`` is what lies between first and last token, to be divided by the gaps
    between. An iteration with prefill tokens is charged to others' prefill by how much longer it is than the last
    one of its replica without; its decode is on the resources of that one.

    Raises:
        ScenarioError: for a record without iterations.
        SimulationError: when components do not add up.
    """
    if record.facts.record != "full":
        raise ScenarioError(f'run.record = "{record.facts.record}": a breakdown reads every iteration; allowed: "full"')
    done = record.requests["outcome"] == "finished"
    request_id, replica = record.requests["request_id"][done], record.requests["replica"][done]
    moments = ("arrival", "queued", "first_scheduled", "first_token", "finish")
    time = {name: nanoseconds(record.requests[f"{name}_s"][done]) for name in moments}
    parts = dict.fromkeys(COMPONENTS, np.zeros(len(replica), np.int64))
    begin = time["first_token"] if metric == "tpot" else time["arrival"]
    end = time["first_token"] if metric == "ttft" else time["finish"]
    stalls = stalls_of(record.preemptions, request_id, time["finish"])
    if metric != "tpot":
        parts["frontend_s"] = time["queued"] - time["arrival"]
        parts |= _queue(record.iterations, replica, time["queued"], time["first_scheduled"])
        stalled = _stalled(stalls, time["first_scheduled"], time["first_token"])
        parts["prefill_s"] = time["first_token"] - time["first_scheduled"] - stalled.sum(axis=0)
    parts["preempted_s"], parts["recompute_s"] = _stalled(stalls, begin, end)
    if metric != "ttft":
        parts |= _decode(record.iterations, replica, time["first_token"], time["finish"], stalls)
    check_sum(parts, end - begin, request_id)
    seconds = {name: part / NS_PER_S for name, part in (parts | {"total_s": end - begin}).items()}
    return {"request_id": request_id, **seconds}


class Explained(NamedTuple):
    """What the requests around a percentile of a metric spent their time on."""

    metric: Metric
    percentile: float
    requests: int
    """Requests it is the mean of."""
    total_s: float
    components_s: dict[str, float]
    """Mean seconds by component; for ``tpot`` a token. They sum to ``total_s`` but for the rounding of floats."""


def explain_percentile(record: RunRecord, metric: Metric = "e2e", percentile: float = 99.0) -> Explained:
    """The components of a metric at a percentile: the mean over the requests nearest to it, one in a hundred.

    Requests are those that arrived in the measured window and finished; for ``tpot`` with two tokens or more.

    Raises:
        ScenarioError: for a record without iterations or without such requests.
    """
    columns = breakdown(record, metric)
    done = record.requests["outcome"] == "finished"
    arrival_s = record.requests["arrival_s"][done]
    gaps = record.requests["output_tokens"][done] - 1
    inside = (arrival_s >= record.facts.window_start_s) & (arrival_s <= record.facts.window_end_s)
    rows = np.flatnonzero(inside & (gaps > 0) if metric == "tpot" else inside)
    if not len(rows):
        raise ScenarioError(
            f"{metric}: no request of the measured window finished, so that there is nothing to explain"
        )
    each = np.maximum(gaps[rows], 1) if metric == "tpot" else np.ones(len(rows), np.int64)
    order = np.argsort(columns["total_s"][rows] / each, kind="stable")
    count = max(1, len(rows) // 100)
    first = round(percentile / 100 * (len(rows) - 1)) - count // 2
    chosen = order[np.clip(np.arange(first, first + count), 0, len(rows) - 1)]
    means = {name: float(np.mean(columns[name][rows[chosen]] / each[chosen])) for name in (*COMPONENTS, "total_s")}
    return Explained(metric, percentile, count, means.pop("total_s"), means)


def _stalled(stalls: Stalls, begin: Ints, end: Ints) -> NDArray[np.int64]:
    """Time out of the batch and time recomputing between two moments of each request, shape ``(2, n)``."""
    total = np.zeros((2, len(begin)), np.int64)
    low, high = begin[stalls.row], np.maximum(end, begin)[stalls.row]
    start, resumed, caught_up = (np.clip(edge, low, high) for edge in (stalls.start, stalls.resumed, stalls.end))
    np.add.at(total[0], stalls.row, resumed - start)
    np.add.at(total[1], stalls.row, caught_up - resumed)
    return total


class _Timeline:
    """A replica's time, cut into stretches, each divided by shares; how much of each part is over at any moment."""

    __slots__ = ("_cuts", "_done", "_points")

    def __init__(self, points_ns: Ints, shares: Floats) -> None:
        """``points_ns`` ascend, shape ``(k + 1,)``; ``shares`` sum to 1 in each row, shape ``(k, parts)``."""
        self._points = points_ns
        self._cuts = np.cumsum(shares, axis=1)
        self._cuts[:, -1] = 1.0
        self._done = np.zeros((len(points_ns), shares.shape[1]), np.int64)
        np.cumsum(_divided(np.diff(points_ns), self._cuts), axis=0, out=self._done[1:])

    def between(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """Nanoseconds of each part from one moment to another, shape ``(n, parts)``."""
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, time_ns: Ints) -> Ints:
        time_ns = np.clip(time_ns, self._points[0], self._points[-1])
        at = np.minimum(np.searchsorted(self._points, time_ns, side="right") - 1, len(self._cuts) - 1)
        return self._done[at] + _divided(time_ns - self._points[at], self._cuts[at])


def _divided(lengths_ns: Ints, cuts: Floats) -> Ints:
    """Whole nanoseconds between rounded cumulative shares of each length: they sum to it."""
    edges = np.rint(lengths_ns[:, None] * cuts).astype(np.int64)
    return np.diff(edges, axis=1, prepend=0)


def _queue(iterations: Columns, replica: Ints, queued: Ints, scheduled: Ints) -> dict[str, Ints]:
    """Nanoseconds in the queue by cause: what stopped admission at the start of each iteration meanwhile."""
    total = np.zeros((len(replica), len(QUEUE)), np.int64)
    for number in np.unique(replica):
        own, here = iterations["replica"] == number, np.flatnonzero(replica == number)
        start = nanoseconds(iterations["start_s"][own])
        causes = np.array([_CAUSE[cause] for cause in iterations["stopped_by"][own]])
        points = np.concatenate((start, [max(int(start[-1]) + 1, int(scheduled[here].max()))]))
        # Nothing was said about a request before the first iteration that starts after it joined the queue.
        next_start = points[np.minimum(np.searchsorted(points, queued[here]), len(points) - 1)]
        looked = np.clip(next_start, queued[here], scheduled[here])
        total[here] = _Timeline(points, np.eye(len(QUEUE))[causes]).between(looked, scheduled[here])
        total[here, -1] += looked - queued[here]
    return dict(zip(QUEUE, total.T, strict=True))


def _decode(iterations: Columns, replica: Ints, first_token: Ints, finish: Ints, stalls: Stalls) -> dict[str, Ints]:
    """Nanoseconds from first token to finish by component, without the stalls."""
    count = len(replica)
    row = np.concatenate((np.arange(count), stalls.row))
    start = np.concatenate((first_token, np.maximum(stalls.start, first_token[stalls.row])))
    end = np.concatenate((finish, np.maximum(stalls.end, first_token[stalls.row])))
    sign = np.where(np.arange(len(row)) < count, 1, -1)[:, None]
    total = np.zeros((count, len(DECODE)), np.int64)
    for number in np.unique(replica):
        own, here = iterations["replica"] == number, replica[row] == number
        columns = {name: column[own] for name, column in iterations.items()}
        order = np.argsort(columns["end_s"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
        points = np.concatenate((nanoseconds(columns["start_s"][:1]), nanoseconds(columns["end_s"])))
        parts = _Timeline(np.maximum.accumulate(points), _decode_shares(columns)).between(start[here], end[here])
        np.add.at(total, row[here], sign[here] * parts)
    return dict(zip(DECODE, total.T, strict=True))


def _decode_shares(iterations: Columns) -> Floats:
    """Shares of each iteration's time by component of ``DECODE``, shape ``(iterations, 5)``.

    An iteration with prefill tokens would have taken as long as the last one without, on the same resources.
    """
    spent = np.stack([iterations[name] for name in BOUND_COLUMNS], axis=1)
    duration_s = spent.sum(axis=1)
    pure = (iterations["prefill_tokens"] == 0) & (duration_s > 0)
    like = np.maximum.accumulate(np.where(pure, np.arange(len(pure)), -1))
    known = like >= 0
    resources = np.divide(spent, duration_s[:, None], out=np.zeros_like(spent), where=duration_s[:, None] > 0)
    resources[duration_s <= 0, -1] = 1.0
    resources[known] = resources[like[known]]
    tokens = iterations["prefill_tokens"] + iterations["decode_tokens"]
    by_tokens = iterations["decode_tokens"] / np.maximum(tokens, 1)
    ratio = np.divide(duration_s[like], duration_s, out=np.ones_like(duration_s), where=duration_s > 0)
    decode = np.where(known, np.clip(ratio, 0.0, 1.0), by_tokens)
    decode = np.where(iterations["prefill_tokens"] == 0, 1.0, decode)
    return np.concatenate((resources * decode[:, None], (1 - decode)[:, None]), axis=1)
