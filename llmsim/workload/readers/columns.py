"""Formats with a column for each fact of a request: most public CSV traces, and anyone's own logs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.workload.readers.fields import LARGEST, FieldReader, Kind, Names, Prompts, UnusualTextError
from llmsim.workload.readers.prefixes import cached_segments, session_links
from llmsim.workload.readers.rows import good_rows, trace_table, warn_of_disorder
from llmsim.workload.readers.sources import Source, source_of
from llmsim.workload.table import Ints, RequestTable

Columns = dict[str, Ints]


class Column(NamedTuple):
    """A column of a file and what it gives."""

    name: str
    field: str
    """A column of the request table, or cached_tokens."""
    kind: Kind
    needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFormat:
    """A CSV, Parquet or JSON-lines file with one request a row; other columns are not read."""

    name: str
    columns: tuple[Column, ...]
    chained: bool = False
    """Whether a request of a session waits for the end of the one before it."""

    @property
    def timed(self) -> bool:
        """Whether the file says when requests arrive."""
        return any(column.field == "arrival_ns" for column in self.columns)

    @property
    def example(self) -> str:
        """The header."""
        return ",".join(self._needed())

    def recognises(self, first_line: str) -> float:
        """1 for all needed columns, a half for all but one of three: a header with one fault is named."""
        header = {name.strip().strip('"') for name in first_line.split(",")}
        missing = set(self._needed()) - header
        return 1.0 if not missing else 0.5 if len(missing) == 1 and len(self._needed()) > 2 else 0.0

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The requests. Raises ScenarioError for a missing column or a bad row."""
        source = source_of(path)
        found = [
            column for column in self.columns if column.needed or source.names is None or column.name in source.names
        ]
        if source.names is not None and (missing := set(self._needed()) - set(source.names)):
            names = ", ".join(name for name in self._needed() if name in missing)
            raise ScenarioError(f"{path}: missing column {names}; found: {', '.join(source.names)}")
        try:
            columns, readers = _at_once(source, found, limit)
        except (UnusualTextError, ValueError):
            columns, readers = _row_by_row(path, source, found, limit, skip_bad_rows)
        return self._table(path, columns, readers)

    def _table(self, path: Path, columns: Columns, readers: dict[str, FieldReader]) -> RequestTable:
        columns.setdefault("arrival_ns", np.zeros(len(columns["prompt_tokens"]), np.int64))
        more: dict[str, Any] = {}
        clients = readers.get("client")
        if isinstance(clients, Names):
            more["client_names"] = tuple(name or "default" for name in clients.codes)
        prompts = readers.get("segments")
        if isinstance(prompts, Prompts):
            more["segments"] = prompts.segments(columns.pop("segments"))
        if self.chained or "cached_tokens" in columns:
            columns = _sorted(path, columns)
            session = columns.get("session", np.full(len(columns["arrival_ns"]), -1))
            if self.chained:
                more["after"] = session_links(session)
            if "cached_tokens" in columns:
                group = np.where(session >= 0, session, -1 - columns.get("client", np.zeros_like(session)))
                lengths = columns["prompt_tokens"], columns["output_tokens"]
                more["segments"] = cached_segments(*lengths, columns.pop("cached_tokens"), group)
        more |= columns
        return trace_table(path, **more)

    def _needed(self) -> list[str]:
        return [column.name for column in self.columns if column.needed]


def _at_once(source: Source, found: Sequence[Column], limit: int | None) -> tuple[Columns, dict[str, FieldReader]]:
    """All columns, many rows at a time. Raises UnusualTextError or ValueError when a row needs a closer look."""
    readers = {column.field: column.kind.start() for column in found}
    blocks: list[list[Ints]] = []
    rows = 0
    for texts in source.blocks([column.name for column in found]):
        blocks.append([readers[column.field].many(text) for column, text in zip(found, texts, strict=True)])
        rows += len(texts[0])
        if limit is not None and rows >= limit:
            break
    columns = {
        column.field: np.concatenate([block[place] for block in blocks])[:limit] for place, column in enumerate(found)
    }
    if not rows or any(np.any(np.abs(column) > LARGEST) for column in columns.values()):
        raise UnusualTextError
    return columns, readers


def _row_by_row(
    path: Path, source: Source, found: Sequence[Column], limit: int | None, skip_bad_rows: bool
) -> tuple[Columns, dict[str, FieldReader]]:
    """All columns, read with an eye on every field."""
    readers = {column.field: column.kind.start() for column in found}
    fields = [(column.name, readers[column.field].one) for column in found]

    def convert(row: list[str]) -> tuple[int, ...]:
        if len(row) != len(fields):
            known = source.names
            raise ValueError(f"has {len(row)} fields, the header has {len(known)}" if known else "is not a JSON object")
        return tuple(_field(name, text, one) for (name, one), text in zip(fields, row, strict=True))

    rows = source.rows([column.name for column in found])
    good = good_rows(path, rows, convert, limit, skip_bad_rows)
    table: Ints = np.fromiter(good, np.dtype((np.int64, len(fields))))
    return {column.field: table[:, place].copy() for place, column in enumerate(found)}, readers


def _field(name: str, text: str, convert: Callable[[str], int]) -> int:
    try:
        if abs(value := convert(text.strip())) > LARGEST:
            raise ValueError("is too large")
        return value
    except ValueError as error:
        raise ValueError(f"{name} '{text}' {error}") from None


def _sorted(path: Path, columns: Columns) -> Columns:
    warn_of_disorder(path, columns["arrival_ns"])
    order = np.argsort(columns["arrival_ns"], kind="stable")
    return {name: column[order] for name, column in columns.items()}
