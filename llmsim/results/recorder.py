"""What the engine tells while it runs, kept as integers: one row an iteration, one entry a request when it ends.

Nothing is computed while the run goes on; ``llmsim.cluster.collect`` makes a ``RunRecord`` of it afterwards.
"""

from array import array
from typing import Any

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

_POSITION = {name: position for position, name in enumerate(ITERATION_FIELDS)}

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


class Recorder:
    """The integers of one run."""

    __slots__ = ("_endings", "_iterations", "_kinds", "_preemptions", "_stalls", "arrival_ns", "requests")

    def __init__(self, requests: int) -> None:
        self._iterations = array("q")
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

    def run(self, row: tuple[int, ...], columns: dict[str, Ints]) -> None:
        """Consecutive iterations have ended that are alike but for some columns."""
        rows = np.empty((len(columns["iteration"]), len(row)), np.int64)
        rows[:] = row
        for name, column in columns.items():
            rows[:, _POSITION[name]] = column
        self._iterations.frombytes(rows.tobytes())

    def stall(self, end_ns: int, gap_ns: int) -> None:
        """A token came at ``end_ns``, not one iteration after the request's last but ``gap_ns``."""
        self._stalls.extend((end_ns, gap_ns))

    def preemption(
        self, row: int, replica: int, preempted_ns: int, resumed_ns: int, caught_up_ns: int
    ) -> None:
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
        order = np.lexsort((rows[:, 0], rows[:, 2]))
        return {name: rows[order, i] for i, name in enumerate(ITERATION_FIELDS)}

    def stalls(self) -> tuple[Ints, Ints]:
        """Ends and gaps of all stalls."""
        rows = _rows(self._stalls, 2)
        return rows[:, 0], rows[:, 1]

    def preemption_rows(self) -> Ints:
        """Shape (n, 5): row, replica, preempted, resumed, caught up."""
        return _rows(self._preemptions, 5)


def _rows(values: "array[int]", width: int) -> Ints:
    return np.frombuffer(values, np.int64).reshape(-1, width) if values else np.zeros((0, width), np.int64)
