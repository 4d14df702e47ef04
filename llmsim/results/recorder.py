"""What the engine tells while it runs, kept as integers: one row an iteration, one entry a request when it ends.

Nothing is computed while the run goes on; ``llmsim.cluster.collect`` makes a ``RunRecord`` of it afterwards.
"""

from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

ITERATION_FIELDS = (
    "replica",
    "iteration",
    "start_ns",
    "end_ns",
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
"""Fields of an iteration's row. ``regular_gaps``: sequences that also emitted a token in the iteration before."""

REQUEST_FIELDS = (
    "replica",
    "queued_ns",
    "first_scheduled_ns",
    "first_token_ns",
    "finish_ns",
    "output_tokens",
    "cached_tokens",
    "preemptions",
    "recomputed_tokens",
    "max_itl_ns",
)
"""Fields of a request; times are -1 when they never came."""


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


class Recorder:
    """The integers of one run."""

    __slots__ = ("_endings", "_iterations", "_kinds", "_preemptions", "_runs", "_stalls", "arrival_ns", "requests")

    def __init__(self, requests: int) -> None:
        self._iterations = array("q")
        self._runs: list[tuple[int, int, Run]] = []
        """Position of the row, iterations, and how they differ."""
        self._preemptions = array("q")
        self._stalls = array("q")
        self.requests = {name: array("q", [-1]) * requests for name in REQUEST_FIELDS}
        self.arrival_ns = array("q", [-1]) * requests
        """When each request was sent; -1: it has not been."""
        self._endings = bytearray(requests)
        self._kinds: dict[tuple[str, str], int] = {("in_flight", "not sent"): 0}

    def iteration(self, row: tuple[int, ...]) -> None:
        """An iteration has ended: ``ITERATION_FIELDS`` in order."""
        self._iterations.extend(row)

    def run(self, row: tuple[int, ...], iterations: int, run: "Run") -> None:
        """Consecutive iterations have ended that repeat the first, whose row is given."""
        self._runs.append((len(self._iterations) // len(ITERATION_FIELDS), iterations, run))
        self._iterations.extend(row)

    def stall(self, end_ns: int, gap_ns: int) -> None:
        """A token came at ``end_ns``, not one iteration after the request's last but ``gap_ns``."""
        self._stalls.extend((end_ns, gap_ns))

    def preemption(self, row: int, replica: int, preempted_ns: int, resumed_ns: int, caught_up_ns: int) -> None:
        """A preempted request emits again (or has ended: times that never came are -1)."""
        self._preemptions.extend((row, replica, preempted_ns, resumed_ns, caught_up_ns))

    def request(self, row: int, values: tuple[int, ...], outcome: str, reason: str) -> None:
        """A request has ended: ``REQUEST_FIELDS`` in order, and how."""
        for column, value in zip(self.requests.values(), values, strict=True):
            column[row] = value
        self.ended(row, outcome, reason)

    def ended(self, row: int, outcome: str, reason: str) -> None:
        """How a request ended."""
        self._endings[row] = self._kinds.setdefault((outcome, reason), len(self._kinds))

    def endings(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Outcome and reason of every request, as text."""
        kinds = np.array(list(self._kinds), dtype=object)[np.frombuffer(self._endings, np.uint8)]
        return kinds[:, 0], kinds[:, 1]

    def iterations(self) -> dict[str, Ints]:
        """``ITERATION_FIELDS`` as arrays, ordered by start and replica."""
        rows = _rows(self._iterations, len(ITERATION_FIELDS))
        columns = dict(zip(ITERATION_FIELDS, rows.T, strict=True))
        if self._runs:
            columns = _spread(columns, self._runs)
        order = np.lexsort((columns["replica"], columns["start_ns"]))
        return {name: column[order] for name, column in columns.items()}

    def stalls(self) -> tuple[Ints, Ints]:
        """Ends and gaps of all stalls."""
        rows = _rows(self._stalls, 2)
        return rows[:, 0], rows[:, 1]

    def preemption_rows(self) -> Ints:
        """Shape (n, 5): row, replica, preempted, resumed, caught up."""
        return _rows(self._preemptions, 5)


def _spread(columns: dict[str, Ints], runs: list[tuple[int, int, Run]]) -> dict[str, Ints]:
    """One row for each iteration of a run."""
    counts = np.ones(len(columns["iteration"]), np.int64)
    where = np.array([row for row, _, _ in runs])
    counts[where] = lengths = np.array([iterations for _, iterations, _ in runs])
    first = np.cumsum(counts) - counts
    source = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(source)) - first[source]
    spread = {name: column[source] for name, column in columns.items()}
    spread["iteration"] += number
    spread["decode_context_tokens"] += number * spread["decode_sequences"]
    within = np.repeat(counts > 1, counts)
    growing = np.array([run.growing for _, _, run in runs])
    which = np.repeat(np.arange(len(runs)), lengths)
    spread["decode_window_tokens"][within] += number[within] * growing[which]
    ends = np.concatenate([run.ends_ns[:iterations] for _, iterations, run in runs])
    spread["end_ns"][within] = ends
    repeats = number > 0
    spread["start_ns"][repeats] = spread["end_ns"][np.flatnonzero(repeats) - 1]
    residues = np.array([run.residues for _, _, run in runs])
    due = np.where(number[within] > 0, residues[which, -spread["iteration"][within] % residues.shape[1]], 0)
    taken = np.cumsum(due)
    starts = np.cumsum(lengths) - lengths
    spread["kv_blocks"][within] += taken - np.repeat(taken[starts], lengths)
    for row, iterations, run in runs:
        for planned in run.arrived_before:
            begin = first[row]
            spread["waiting"][begin + planned + 1 : begin + iterations] += 1
    return spread


def _rows(values: "array[int]", width: int) -> Ints:
    return np.frombuffer(values, np.int64).reshape(-1, width) if values else np.zeros((0, width), np.int64)
