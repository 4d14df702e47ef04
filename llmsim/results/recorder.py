"""What the engine tells while it runs, as integers: one row an iteration or leap, one entry a request when it ends.

Nothing is computed while rows come in. At record level ``full`` they stay until the run is over; at the others they are
handed over in blocks, so that memory does not grow with the number of iterations, at ``summary`` not even with that of
requests.
"""

from array import array
from collections.abc import Callable
from itertools import chain
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from llmsim.units import TICK_BITS

Ints = NDArray[np.int64]

ITERATION_FIELDS = (
    "replica",
    "iteration",
    "start_ns",
    "end_ns",
    "gap_ns",
    "prefill_sequences",
    "prefill_tokens",
    "prefill_pairs",
    "prefill_context_tokens",
    "decode_sequences",
    "decode_context_tokens",
    "sampled_rows",
    "prefill_window_pairs",
    "prefill_window_tokens",
    "decode_window_tokens",
    "sampled",
    "regular_gaps",
    "running",
    "waiting",
    "kv_blocks",
    "preempted",
    "cached_tokens",
    "stopped_by",
    "iterations",
    "kv_blocks_after",
    "growing",
    "phase_ticks",
    "first_ticks",
    "longer_ticks",
)
"""Fields of a row, which stands for one iteration or for several that repeat the first. ``gap_ns``: from the end of the
replica's iteration before to the first one's; ``end_ns``: the last one's; ``regular_gaps``: sequences that also emitted
a token then; ``kv_blocks_after``: as ``kv_blocks``, in the last one; ``growing``: tokens by which the windowed context
grows an iteration; ``phase_ticks``: how far into its nanosecond the first one starts, ``first_ticks``: how long it
takes, ``longer_ticks``: by how much each takes longer than the one before it. The last five are 0 where ``iterations``
is 1."""

ONE = (1, 0, 0, 0, 0, 0)
"""The last six fields of a row that stands for one iteration."""


REQUEST_FIELDS = (
    "replica",
    "arrival_ns",
    "queued_ns",
    "first_scheduled_ns",
    "first_token_ns",
    "finish_ns",
    "output_tokens",
    "cached_tokens",
    "preemptions",
    "recomputed_tokens",
    "max_itl_ns",
    "attempts",
)
"""Fields of a request; times are -1 when they never came."""

_OF_SINGLE_ITERATIONS = (
    "prefill_sequences",
    "prefill_tokens",
    "prefill_pairs",
    "prefill_context_tokens",
    "prefill_window_pairs",
    "prefill_window_tokens",
    "preempted",
    "cached_tokens",
)
"""What is 0 in iterations that repeat one another: these are of decodes alone."""

_OF_EVERY_ITERATION = [
    name for name in ITERATION_FIELDS[: -len(ONE)] if name not in (*_OF_SINGLE_ITERATIONS, "end_ns", "gap_ns")
]
"""What is the same in them, or follows from the first."""

_packed = Struct(f"{len(ITERATION_FIELDS)}q").pack
"""A row as bytes: an array takes them in a fraction of the time of as many integers."""

NEVER_NS = 1 << 62
"""Later than any time of a run."""

_BLOCK = 16384
"""Rows handed over at a time."""


class Run(NamedTuple):
    """What iterations that repeat one another do not have in common, beside their times and contexts."""

    first_change: int
    """How many more KV blocks are held in the second than in the first."""
    changes: list[int]
    """How many more in each from the second on than in the one before it, over a cycle that repeats. What else was
    given back after the first shows in ``first_change`` only."""
    arrived_before: list[int]
    """For each request that joined the queue meanwhile, how many iterations after the first were planned before."""


class Rows(NamedTuple):
    """Iterations as they were told."""

    columns: dict[str, Ints]
    """``ITERATION_FIELDS``, shape ``(n,)``."""
    runs: list[Run]
    """Of the rows that stand for several iterations, in their order; at record level ``full`` only."""


class Recorder:
    """The integers of one run."""

    def __init__(self, requests: int, level: str = "full") -> None:
        self._level = level
        self.keeps_iterations = level == "full"
        """Whether every iteration will be asked for, not only sums over them."""
        self._width = len(ITERATION_FIELDS)
        self._iterations = array("q")
        self._runs: list[Run] = []
        self._stalls = array("q")
        self._preemptions = array("q")
        self._ended = array("q")
        """Rows, endings and ``REQUEST_FIELDS`` of requests that have ended since the last block."""
        self._limit = _BLOCK * self._width if level != "full" else float("inf")
        self._request_limit = _BLOCK * (2 + len(REQUEST_FIELDS)) if level == "summary" else float("inf")
        self._endings = bytearray(requests)
        self._kinds: dict[tuple[str, str], int] = {("in_flight", "not sent"): 0}
        self.on_iterations: Callable[[Rows], None] = _drop
        """Takes a block of iterations."""
        self.on_requests: Callable[[Ints], None] = _drop
        """Takes a block of ended requests: row, kind of ending, then ``REQUEST_FIELDS``, shape ``(n, 2 + fields)``."""
        self.census = Census()

    def iteration(self, row: tuple[int, ...]) -> None:
        """An iteration has ended, or several that are alike: ``ITERATION_FIELDS`` in order."""
        self._iterations.frombytes(_packed(*row))
        if len(self._iterations) >= self._limit:
            self.flush()

    def run(self, run: Run) -> None:
        """What the iterations of the next row do not have in common."""
        self._runs.append(run)

    def stall(self, end_ns: int, gap_ns: int) -> None:
        """A token came at ``end_ns``, not one iteration after the request's last but ``gap_ns``."""
        self._stalls.extend((end_ns, gap_ns))

    def preemption(self, row: int, replica: int, preempted_ns: int, resumed_ns: int, caught_up_ns: int) -> None:
        """A preempted request emits again (or has ended: times that never came are -1)."""
        if self._level != "summary":
            self._preemptions.extend((row, replica, preempted_ns, resumed_ns, caught_up_ns))

    def request(self, row: int, values: tuple[int, ...], outcome: str, reason: str) -> None:
        """A request has ended: ``REQUEST_FIELDS`` in order, and how."""
        kind = self._kinds.setdefault((outcome, reason), len(self._kinds))
        self._endings[row] = 1
        self._ended.extend((row, kind, *values))
        if len(self._ended) >= self._request_limit:
            self.flush_requests()

    def has_ended(self, row: int) -> bool:
        """Whether the request's end has been told."""
        return bool(self._endings[row])

    def kinds(self) -> NDArray[Any]:
        """Outcome and reason by kind of ending, shape ``(kinds, 2)``."""
        return np.array(list(self._kinds), dtype=object)

    def flush(self) -> None:
        """Hand over the iterations told since the last block."""
        rows = np.ascontiguousarray(_matrix(self._iterations, self._width).T)
        columns = dict(zip(ITERATION_FIELDS, rows, strict=True))
        self.on_iterations(Rows(columns, self._runs))
        self._iterations, self._runs = array("q"), []

    def flush_requests(self) -> None:
        """Hand over the requests that have ended since the last block."""
        self.on_requests(_matrix(self._ended, 2 + len(REQUEST_FIELDS)))
        self._ended = array("q")

    def take_stalls(self) -> tuple[Ints, Ints]:
        """Ends and gaps of the stalls told since the last call."""
        rows = _matrix(self._stalls, 2)
        self._stalls = array("q")
        return rows[:, 0], rows[:, 1]

    def preemptions(self) -> Ints:
        """Shape (n, 5): row, replica, preempted, resumed, caught up."""
        return _matrix(self._preemptions, 5)


class Census:
    """Requests running and waiting over time, summed over replicas: time-weighted sums and maxima in a window."""

    __slots__ = (
        "_since_ns",
        "end_ns",
        "running",
        "running_max",
        "running_ns",
        "waiting",
        "waiting_max",
        "waiting_ns",
    )

    def __init__(self) -> None:
        self.end_ns = NEVER_NS
        """End of the window."""
        self._since_ns = 0
        self.running = self.waiting = 0
        self.running_ns = self.waiting_ns = 0
        self.running_max = self.waiting_max = 0

    def start(self, start_ns: int) -> None:
        """Leave out what is before the window."""
        self._since_ns = start_ns

    def change(self, now_ns: int, running: int, waiting: int) -> None:
        """From now on so many more run and wait."""
        if now_ns > self._since_ns:
            self.advance(now_ns)
        self.running += running
        self.waiting += waiting

    def advance(self, now_ns: int) -> None:
        """Add up the time since the last change, as far as it lies in the window."""
        if now_ns > self.end_ns:
            now_ns = self.end_ns
        lasting = now_ns - self._since_ns
        if lasting > 0:
            running, waiting = self.running, self.waiting
            self._since_ns = now_ns
            self.running_ns += running * lasting
            self.waiting_ns += waiting * lasting
            if running > self.running_max:
                self.running_max = running
            if waiting > self.waiting_max:
                self.waiting_max = waiting


def spread(rows: Rows) -> dict[str, Ints]:
    """``ITERATION_FIELDS`` with one row for every iteration, but those that tell how the iterations of a row differ."""
    counts = rows.columns["iterations"]
    number = numbers_of(rows.columns)
    wide = {name: np.repeat(rows.columns[name], counts) for name in _OF_EVERY_ITERATION}
    alone, begins = np.flatnonzero(counts == 1), _begins(counts)
    for name in _OF_SINGLE_ITERATIONS:
        wide[name] = np.zeros(len(number), np.int64)
        wide[name][begins[alone]] = rows.columns[name][alone]
    wide["iteration"] += number
    wide["decode_context_tokens"] += number * wide["decode_sequences"]
    wide["decode_window_tokens"] += number * np.repeat(rows.columns["growing"], counts)
    wide["end_ns"], wide["gap_ns"] = ends_and_gaps_ns(rows.columns, number)
    np.copyto(wide["start_ns"][1:], wide["end_ns"][:-1], where=number[1:] > 0)
    if rows.runs:
        _add_what_differs(wide, rows, number)
    return wide


def numbers_of(columns: dict[str, Ints]) -> Ints:
    """The number of every iteration in its row, from 0."""
    counts = columns["iterations"]
    return np.arange(counts.sum()) - np.repeat(_begins(counts), counts)


def _begins(counts: Ints) -> Ints:
    """Where the first of each row's iterations stands among all."""
    return np.cumsum(counts) - counts


def ends_and_gaps_ns(columns: dict[str, Ints], number: Ints) -> tuple[Ints, Ints]:
    """When every iteration ended, and how long after the replica's one before it; ``number``: ``numbers_of`` them."""
    counts = columns["iterations"]

    def wide(name: str) -> Ints:
        return np.repeat(columns[name], counts)

    ticks = (
        wide("phase_ticks") + (number + 1) * wide("first_ticks") + wide("longer_ticks") * (number * (number + 1) // 2)
    )
    end_ns, gap_ns = wide("start_ns") + (ticks >> TICK_BITS), wide("gap_ns")
    alone = np.flatnonzero(counts == 1)
    end_ns[_begins(counts)[alone]] = columns["end_ns"][alone]
    np.copyto(gap_ns[1:], np.diff(end_ns), where=number[1:] > 0)
    return end_ns, gap_ns


def _add_what_differs(wide: dict[str, Ints], rows: Rows, number: Ints) -> None:
    """KV blocks taken since the first iteration of each row, and requests that joined the queue since."""
    counts = rows.columns["iterations"]
    several, begins = np.flatnonzero(counts > 1), _begins(counts)
    changes = np.fromiter(chain.from_iterable(run.changes for run in rows.runs), np.int64)
    sizes, places = np.ones_like(counts), np.zeros_like(counts)
    sizes[several] = [len(run.changes) for run in rows.runs]
    places[several] = _begins(sizes[several])
    more = changes[np.repeat(places, counts) + (number - 1) % np.repeat(sizes, counts)]
    more[begins] = 0
    more[begins[several] + 1] = [run.first_change for run in rows.runs]
    held = np.cumsum(more)
    wide["kv_blocks"] += held - np.repeat(held[begins], counts)
    for begin, iterations, run in zip(begins[several].tolist(), counts[several].tolist(), rows.runs, strict=True):
        for planned in run.arrived_before:
            wide["waiting"][begin + planned + 1 : begin + iterations] += 1


def _matrix(values: "array[int]", width: int) -> Ints:
    return np.frombuffer(values, np.int64).reshape(-1, width) if values else np.zeros((0, width), np.int64)


def _drop(block: Any) -> None:
    """Nobody takes it."""
