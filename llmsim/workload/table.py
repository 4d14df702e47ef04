"""The request table: a workload as arrays, one row a request, which is all the engine sees of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim.errors import ScenarioError
from llmsim.units import NS_PER_S

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RequestTable:
    """A workload of ``n`` requests, in order of arrival.

    Every array has shape ``(n,)`` and dtype int64, except the four segment arrays.

    A row with ``after >= 0`` (the row of its predecessor) arrives at ``max(arrival, end of the predecessor +
    think)``: sessions, agents and closed loops are rows. A predecessor stands before its successor.

    Prompts are token streams without tokens: the prompt of row ``i`` is the concatenation of the segments
    ``segment_offsets[i]:segment_offsets[i + 1]``, each the tokens ``start .. start + tokens - 1`` of a stream. Two
    tokens are equal iff stream and index are equal. A stream ``>= 0`` is an input stream; ``-1 - r`` is what row
    ``r`` generates (its j-th output token has index j). A row without segments is one private stream, which no
    other row shares.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    """True output length, the end-of-sequence token counted: known to the model, not to the scheduler."""
    max_tokens: Ints
    """The request's own limit on output tokens; -1: up to max_model_len, so that it ends by end-of-sequence."""
    priority: Ints
    """Smaller is more important, as in vLLM."""
    client: Ints
    """Index into ``client_names``."""
    session: Ints
    """Sessions have numbers >= 0; -1: a request of its own."""
    after: Ints
    think_ns: Ints
    segment_offsets: Ints = field(default_factory=lambda: np.zeros(1, np.int64))
    """Shape ``(n + 1,)``, or ``(1,)`` when no row has segments."""
    segment_stream: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    segment_start: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    segment_tokens: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    client_names: tuple[str, ...] = ("default",)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @classmethod
    def build(
        cls,
        *,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        arrival_s: ArrayLike | None = None,
        arrival_ns: ArrayLike | None = None,
        max_tokens: ArrayLike = -1,
        priority: ArrayLike = 0,
        client: ArrayLike = 0,
        session: ArrayLike = -1,
        after: ArrayLike = -1,
        think_ns: ArrayLike = 0,
        segments: tuple[Ints, Ints, Ints, Ints] | None = None,
        client_names: tuple[str, ...] = ("default",),
    ) -> Self:
        """A checked table from arrays of one length, or single values, which hold for every row.

        Arrivals are given in seconds or in nanoseconds. Rows need not be sorted: they are put in order of arrival,
        rows of one arrival staying in the order given, and ``after`` and output streams, which count rows as given,
        follow. ``segments`` is the four segment arrays.

        Raises ScenarioError naming the first bad row.
        """
        if arrival_ns is None:
            if arrival_s is None:
                raise ScenarioError("a request table needs arrival_s or arrival_ns")
            arrival_ns = np.rint(np.asarray(arrival_s, np.float64) * NS_PER_S).astype(np.int64)
        columns = (arrival_ns, prompt_tokens, output_tokens, max_tokens, priority, client, session, after, think_ns)
        try:
            rows = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column)) for column in columns))
        except ValueError as error:
            raise ScenarioError(f"columns of a request table differ in length: {error}") from None
        table = cls(*(np.array(column, np.int64) for column in rows), *(segments or ()), client_names=client_names)
        table._check()
        if np.all(np.diff(table.arrival_ns) >= 0):
            return table
        return table.take(np.argsort(table.arrival_ns, kind="stable"))

    @classmethod
    def merge(cls, tables: Sequence[Self]) -> Self:
        """One table of all the rows of several, in order of arrival; equal arrivals in the order of the tables.

        Each table's streams, sessions and clients stay apart from the others'.
        """
        if len(tables) == 1:
            return tables[0]
        moved, rows, streams, sessions, clients = [], 0, 0, 0, 0
        for table in tables:
            stream = table.segment_stream
            moved.append(
                replace(
                    table,
                    client=table.client + clients,
                    session=np.where(table.session < 0, -1, table.session + sessions),
                    after=np.where(table.after < 0, -1, table.after + rows),
                    segment_stream=np.where(stream < 0, stream - rows, stream + streams),
                )
            )
            rows += len(table)
            streams += int(stream.max(initial=-1)) + 1
            sessions += int(table.session.max(initial=-1)) + 1
            clients += len(table.client_names)
        joined = [np.concatenate([getattr(table, name) for table in moved]) for name in (*_ROW_ARRAYS, *_SEGMENT_ARRAYS)]
        counts = np.concatenate([table._segment_counts() for table in moved])
        names = tuple(name for table in tables for name in table.client_names)
        row_arrays, segment_arrays = joined[: len(_ROW_ARRAYS)], joined[len(_ROW_ARRAYS) :]
        offsets = _offsets(counts) if counts.any() else np.zeros(1, np.int64)
        merged = cls(*row_arrays, offsets, *segment_arrays, client_names=names)
        return merged.take(np.argsort(merged.arrival_ns, kind="stable"))

    def take(self, rows: Ints) -> Self:
        """The table of these rows in this order; ``after`` and output streams follow their rows.

        Raises ScenarioError when a row is taken without, or before, the row it comes after.
        """
        new_row = np.full(len(self), -1, np.int64)
        new_row[rows] = np.arange(len(rows))
        after = self.after[rows]
        follows = after >= 0
        after[follows] = new_row[after[follows]]
        if np.any(after[follows] < 0) or np.any(after >= np.arange(len(rows))):
            raise ScenarioError("rows of a request table were taken without, or before, the row they come after")
        row_arrays = {name: getattr(self, name)[rows] for name in _ROW_ARRAYS} | {"after": after}
        if len(self.segment_offsets) == 1:
            return replace(self, **row_arrays)
        counts = self._segment_counts()[rows]
        offsets = _offsets(counts)
        chosen = np.repeat(self.segment_offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
        segment_arrays = {name: getattr(self, name)[chosen] for name in _SEGMENT_ARRAYS}
        stream = segment_arrays["segment_stream"]
        generated = stream < 0
        stream[generated] = -1 - new_row[-1 - stream[generated]]
        return replace(self, **row_arrays, segment_offsets=offsets, **segment_arrays)

    def _segment_counts(self) -> Ints:
        """Number of segments of each row."""
        if len(self.segment_offsets) == 1:
            return np.zeros(len(self), np.int64)
        return np.diff(self.segment_offsets)

    def _check(self) -> None:
        """Raise ScenarioError at the first row that breaks what the fields promise."""
        self._refuse("arrival_ns", self.arrival_ns < 0, "allowed is 0 or more")
        self._refuse("prompt_tokens", self.prompt_tokens < 1, "allowed is 1 or more")
        self._refuse("output_tokens", self.output_tokens < 1, "allowed is 1 or more")
        self._refuse("max_tokens", (self.max_tokens < 1) & (self.max_tokens != -1), "allowed is -1, or 1 or more")
        self._refuse("think_ns", self.think_ns < 0, "allowed is 0 or more")
        unknown = (self.client < 0) | (self.client >= len(self.client_names))
        self._refuse("client", unknown, f"allowed is an index of {self.client_names}")
        self._refuse("after", self.after >= np.arange(len(self)), "allowed is an earlier row, or -1")
        if len(self.segment_offsets) > 1:
            total = np.concatenate(([0], np.cumsum(self.segment_tokens)))[self.segment_offsets]
            differs = (self._segment_counts() > 0) & (np.diff(total) != self.prompt_tokens)
            self._refuse("prompt_tokens", differs, "its segments have another number of tokens")

    def _refuse(self, name: str, bad: NDArray[np.bool_], allowed: str) -> None:
        if np.any(bad):
            row = int(np.argmax(bad))
            raise ScenarioError(f"request table row {row}: {name} is {getattr(self, name)[row]}; {allowed}")


_ROW_ARRAYS = (
    "arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "client", "session", "after", "think_ns",
)  # fmt: skip
_SEGMENT_ARRAYS = ("segment_stream", "segment_start", "segment_tokens")


def _offsets(counts: Ints) -> Ints:
    """Where each row's segments begin, and where the last row's end."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
