"""The request table: a workload as arrays, one row a request, which is all the engine sees of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmsim.errors import ScenarioError
from llmsim.units import NS_PER_S

Ints = NDArray[np.int64]
Segments = tuple[Ints, Ints, Ints, Ints]
"""Prompts: segment_offsets, segment_stream, segment_start and segment_tokens of a request table."""


@dataclass(frozen=True, slots=True)
class RequestTable:
    """A workload of ``n`` requests, in order of arrival.

    Every array has shape ``(n,)`` and dtype int64, except the four segment arrays.

    A row with ``after >= 0`` (the row of its predecessor) arrives at ``max(arrival, end of the predecessor +
    think)``: sessions, agents and closed loops are rows. A predecessor stands before its successor.

    Prompts are token streams without tokens: the prompt of row ``i`` is the concatenation of the segments
    ``segment_offsets[i]:segment_offsets[i + 1]``, each the tokens ``start .. start + tokens - 1`` of a
    stream. Two tokens are equal iff stream and index are equal. A stream ``>= 0`` is an input stream;
    ``-1 - r`` is what row ``r`` generates (its j-th output token has index j). A row without segments is one
    private stream, which no other row shares.
    """

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    """True output length, the end-of-sequence token counted: known to the model, not to the scheduler."""
    max_tokens: Ints
    """The request's own limit on output tokens; -1: up to max_model_len, so that it ends by itself."""
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
    timeout_ns: Ints | None = None
    """How long after sending a request its client gives up on it and disconnects; -1: never. None: nobody does."""
    backoff_ns: Ints | None = None
    """Shape ``(n, retries)``: how long after giving up for the first, second ... time the client sends the request
    again; -1: it does not, nor later. None: nobody does."""

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
        segments: Segments | None = None,
        client_names: tuple[str, ...] = ("default",),
        timeout_ns: ArrayLike | None = None,
        backoff_ns: Ints | None = None,
    ) -> Self:
        """A checked table from arrays of one length, or single values, which hold for every row.

        Arrivals are in seconds or in nanoseconds. The rows are put in order of arrival, those of one instant
        staying in the order given; ``after`` and output streams, which count rows as given, follow them.

        Raises ScenarioError naming the first row with a bad value, the value and what is allowed.
        """
        if arrival_ns is None:
            arrival_ns = np.rint(np.asarray(arrival_s, np.float64) * NS_PER_S)
        lengths = (prompt_tokens, output_tokens, max_tokens)
        columns = _columns(arrival_ns, *lengths, priority, client, session, after, think_ns)
        if segments is not None:
            columns |= zip(("segment_offsets", *_SEGMENTS), segments, strict=True)
        if timeout_ns is not None:
            columns["timeout_ns"] = np.broadcast_to(timeout_ns, len(columns["arrival_ns"])).astype(np.int64)
        table = cls(**columns, client_names=client_names, backoff_ns=backoff_ns)
        table._check()
        if np.all(np.diff(table.arrival_ns) >= 0):
            return table
        return table.take(np.argsort(table.arrival_ns, kind="stable"))

    @classmethod
    def merge(cls, tables: Sequence[Self]) -> Self:
        """All rows of several tables in order of arrival, those of one instant in the order of the tables.

        The tables' streams, sessions and clients stay apart.
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
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(table, name) for table in moved]) for name in (*_COLUMNS, *_SEGMENTS)
        }
        if len(columns["segment_stream"]):
            columns["segment_offsets"] = _offsets(np.concatenate([table._segment_counts() for table in moved]))
        columns["timeout_ns"] = _stacked([table.timeout_ns for table in moved], [(len(table),) for table in moved])
        most = max((table.backoff_ns.shape[1] for table in moved if table.backoff_ns is not None), default=0)
        columns["backoff_ns"] = _stacked([table.backoff_ns for table in moved], [(len(table), most) for table in moved])
        merged = cls(**columns, client_names=tuple(name for table in tables for name in table.client_names))
        return merged.take(np.argsort(merged.arrival_ns, kind="stable"))

    def take(self, rows: Ints) -> Self:
        """The table of these rows in this order; ``after`` and output streams follow them.

        What a row that is not taken generates becomes an input stream of its own.

        Raises ScenarioError when a row is taken without, or before, the one it comes after.
        """
        place = np.full(len(self), -1, np.int64)
        place[rows] = np.arange(len(rows))
        after = self.after[rows]
        waits = after >= 0
        after[waits] = place[after[waits]]
        if np.any(after[waits] < 0) or np.any(after >= np.arange(len(rows))):
            raise ScenarioError("rows of a request table were taken without, or before, those they come after")
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in _COLUMNS}
        columns["after"] = after
        columns |= {name: values[rows] for name in _PATIENCE if (values := getattr(self, name)) is not None}
        if len(self.segment_offsets) > 1:
            counts = self._segment_counts()[rows]
            offsets = _offsets(counts)
            chosen = np.repeat(self.segment_offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
            columns |= {name: getattr(self, name)[chosen] for name in _SEGMENTS}
            stream = columns["segment_stream"]
            generated = stream < 0
            author = -1 - stream[generated]
            unused = max(int(self.segment_stream.max(initial=-1)), -1) + 1
            stream[generated] = np.where(place[author] < 0, unused + author, -1 - place[author])
            columns["segment_offsets"] = offsets
        return replace(self, **columns)

    def _segment_counts(self) -> Ints:
        """Number of segments of each row."""
        if len(self.segment_offsets) == 1:
            return np.zeros(len(self), np.int64)
        return np.diff(self.segment_offsets)

    def _check(self) -> None:
        """Raise ScenarioError at the first row that breaks what the fields promise."""
        row = np.arange(len(self))
        self._refuse("arrival_ns", self.arrival_ns < 0, "0 or more")
        self._refuse("prompt_tokens", self.prompt_tokens < 1, "1 or more")
        self._refuse("output_tokens", self.output_tokens < 1, "1 or more")
        self._refuse("max_tokens", (self.max_tokens < 1) & (self.max_tokens != -1), "-1, or 1 or more")
        self._refuse("think_ns", self.think_ns < 0, "0 or more")
        if self.timeout_ns is not None:
            self._refuse("timeout_ns", (self.timeout_ns < 1) & (self.timeout_ns != -1), "-1, or 1 or more")
        if self.backoff_ns is not None:
            self._refuse("backoff_ns", np.any(self.backoff_ns < -1, axis=1), "-1, or 0 or more")
        unknown = (self.client < 0) | (self.client >= len(self.client_names))
        self._refuse("client", unknown, f"an index into {self.client_names}")
        self._refuse("after", (self.after < -1) | (self.after >= row), "an earlier row, or -1")
        if len(self.segment_offsets) > 1:
            total = np.diff(np.concatenate(([0], np.cumsum(self.segment_tokens)))[self.segment_offsets])
            differs = (self._segment_counts() > 0) & (total != self.prompt_tokens)
            self._refuse("prompt_tokens", differs, f"{total[np.argmax(differs)]}, the sum over its segments")

    def _refuse(self, name: str, bad: NDArray[np.bool_], allowed: str) -> None:
        if np.any(bad):
            row = int(np.argmax(bad))
            raise ScenarioError(f"request table row {row}: {name} is {getattr(self, name)[row]}; allowed is {allowed}")


_COLUMNS = (
    "arrival_ns",
    "prompt_tokens",
    "output_tokens",
    "max_tokens",
    "priority",
    "client",
    "session",
    "after",
    "think_ns",
)
_PATIENCE = ("timeout_ns", "backoff_ns")
_SEGMENTS = ("segment_stream", "segment_start", "segment_tokens")


class Workload(Protocol):
    """What a scenario's ``workload`` is: one of the kinds, or from Python any object with this method."""

    def generate(self, seed: int) -> RequestTable:
        """The requests; the same for the same seed."""
        ...


def _columns(*given: ArrayLike) -> dict[str, Any]:
    """The values of ``_COLUMNS``, in their order, as arrays of one length."""
    try:
        rows = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column)) for column in given))
    except ValueError as error:
        raise ScenarioError(f"the columns of a request table differ in length: {error}") from None
    return {name: _whole(name, row) for name, row in zip(_COLUMNS, rows, strict=True)}


def _whole(name: str, values: NDArray[Any]) -> Ints:
    """A column as int64; ScenarioError for a value that is no whole number."""
    if values.dtype.kind not in "iu" and (bad := ~(np.rint(values) == values)).any():
        row = int(np.argmax(bad))
        raise ScenarioError(f"request table row {row}: {name} is {values[row]}; allowed is a whole number")
    return values.astype(np.int64)


def _stacked(columns: list[Ints | None], shapes: list[tuple[int, ...]]) -> Ints | None:
    """Columns that tables may lack, one under another, each filled up with -1 to its shape; None when all lack it."""
    if all(column is None for column in columns):
        return None
    filled = [np.full(shape, -1, np.int64) for shape in shapes]
    for column, place in zip(columns, filled, strict=True):
        if column is not None:
            place[..., : column.shape[-1]] = column
    return np.concatenate(filled)


def _offsets(counts: Ints) -> Ints:
    """Where the segments of each row begin, and where those of the last row end."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets
