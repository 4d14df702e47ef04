"""What the engine tells while it runs, as integers: one row an iteration or leap, one entry a request when it ends.

Nothing is computed while rows come in. At record level ``full`` they stay until the run is over; at the others they are
handed over in blocks, so that memory does not grow with the number of iterations, at ``summary`` not even with that of
requests.
"""

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
)
"""Fields of an iteration's row. ``gap_ns``: since the end of the replica's iteration before; ``regular_gaps``:
sequences that also emitted a token then."""

TIME_FIELDS = ("replica", "iteration", "start_ns", "end_ns", "gap_ns", "regular_gaps", "kv_blocks")
"""What sums over time need of every iteration."""

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

_BLOCK = 16384
"""Rows handed over at a time."""


class Run(NamedTuple):
    """How consecutive iterations of the same decodes differ from the first."""

    ends_ns: Ints
    """Their ends; there may be more of them than iterations."""
    residues: list[int]
    """Decodes by their offset modulo the block size: entry ``-iteration % block_size`` need a block in it."""
    growing: int
    """How many tokens the windowed context grows an iteration."""
    arrived_before: list[int]
    """For each request that joined the queue meanwhile, how many iterations after the first were planned before."""


class Rows(NamedTuple):
    """Iterations as they were told: one row each, or one for all that repeat the first."""

    columns: dict[str, Ints]
    """``ITERATION_FIELDS``, shape ``(n,)``."""
    runs: list[tuple[int, int, Run]]
    """Rows that stand for several iterations: position, number of iterations, and how they differ."""


class Recorder:
    """The integers of one run."""

    def __init__(self, requests: int, level: str = "full") -> None:
        self._level = level
        self._width = len(ITERATION_FIELDS)
        self._iterations = array("q")
        self._runs: list[tuple[int, int, Run]] = []
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
        """An iteration has ended: ``ITERATION_FIELDS`` in order."""
        self._iterations.extend(row)
        if len(self._iterations) >= self._limit:
            self.flush()

    def run(self, row: tuple[int, ...], iterations: int, run: Run) -> None:
        """Consecutive iterations have ended that repeat the first, whose row is given."""
        self._runs.append((len(self._iterations) // self._width, iterations, run))
        self.iteration(row)

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
        self._endings[row] = kind or 1
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
        rows = _matrix(self._iterations, self._width)
        columns = dict(zip(ITERATION_FIELDS, rows.T, strict=True))
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
        "start_ns",
        "waiting",
        "waiting_max",
        "waiting_ns",
    )

    def __init__(self) -> None:
        self.start_ns = 0
        self.end_ns: float = float("inf")
        self._since_ns = 0
        self.running = self.waiting = 0
        self.running_ns = self.waiting_ns = 0
        self.running_max = self.waiting_max = 0

    def change(self, now_ns: int, running: int, waiting: int) -> None:
        """From now on so many more run and wait."""
        if now_ns > self._since_ns:
            self.advance(now_ns)
        self.running += running
        self.waiting += waiting

    def advance(self, now_ns: int) -> None:
        """Add up the time since the last change, as far as it lies in the window."""
        lasting = min(now_ns, self.end_ns) - max(self._since_ns, self.start_ns)
        self._since_ns = now_ns
        if lasting > 0:
            self.running_ns += self.running * int(lasting)
            self.waiting_ns += self.waiting * int(lasting)
            self.running_max = max(self.running_max, self.running)
            self.waiting_max = max(self.waiting_max, self.waiting)


def spread(rows: Rows, fields: tuple[str, ...] = ITERATION_FIELDS) -> dict[str, Ints]:
    """The given fields with one row for every iteration; ``TIME_FIELDS`` must be among them."""
    runs = rows.runs
    columns = {name: rows.columns[name] for name in fields}
    if not runs:
        return columns
    counts = np.ones(len(columns["iteration"]), np.int64)
    where = np.array([row for row, _, _ in runs])
    counts[where] = lengths = np.array([iterations for _, iterations, _ in runs])
    first = np.cumsum(counts) - counts
    source = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(source)) - first[source]
    wide = {name: column[source] for name, column in columns.items()}
    within = np.repeat(counts > 1, counts)
    which = np.repeat(np.arange(len(runs)), lengths)
    wide["iteration"] += number
    if "decode_context_tokens" in wide:
        wide["decode_context_tokens"] += number * wide["decode_sequences"]
        wide["decode_window_tokens"][within] += number[within] * np.array([run.growing for _, _, run in runs])[which]
    wide["end_ns"][within] = np.concatenate([run.ends_ns[:iterations] for _, iterations, run in runs])
    repeats = number > 0
    wide["start_ns"][repeats] = wide["end_ns"][np.flatnonzero(repeats) - 1]
    wide["gap_ns"][repeats] = wide["end_ns"][repeats] - wide["start_ns"][repeats]
    wide["kv_blocks"][within] += _blocks_taken(wide["iteration"][within], number[within], which, lengths, runs)
    for row, iterations, run in runs if "waiting" in wide else ():
        for planned in run.arrived_before:
            wide["waiting"][first[row] + planned + 1 : first[row] + iterations] += 1
    return wide


def _blocks_taken(iteration: Ints, number: Ints, which: Ints, lengths: Ints, runs: list[tuple[int, int, Run]]) -> Ints:
    """KV blocks taken since the first iteration of each run; block sizes may differ between replicas."""
    sizes = np.array([len(run.residues) for _, _, run in runs])
    offsets = np.cumsum(sizes) - sizes
    residues = np.concatenate([run.residues for _, _, run in runs])
    due = np.where(number > 0, residues[offsets[which] + -iteration % sizes[which]], 0)
    taken = np.cumsum(due)
    return np.asarray(taken - np.repeat(taken[np.cumsum(lengths) - lengths], lengths))


def _matrix(values: "array[int]", width: int) -> Ints:
    return np.frombuffer(values, np.int64).reshape(-1, width) if values else np.zeros((0, width), np.int64)


def _drop(block: Any) -> None:
    """Nobody takes it."""
