"""Files with a named value in each place: CSV, Parquet, and JSON objects of one line each.

A source gives its rows one by one as texts, and, where pyarrow can, many at once.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llmsim.workload.readers.fields import UnusualTextError
from llmsim.workload.readers.text import first_line, is_parquet, open_text

_BLOCK_BYTES = 1 << 24
NumberedRow = tuple[int, list[str]]


class Source(Protocol):
    """A file of rows."""

    @property
    def names(self) -> Sequence[str] | None:
        """The columns there are; None: each row names its own."""

    def rows(self, names: Sequence[str]) -> Iterator[NumberedRow]:
        """Every row: its line, and the texts of these columns; fewer when the row is cut short."""

    def blocks(self, names: Sequence[str]) -> Iterable[list[Any]]:
        """The same columns, many rows at once, as pyarrow arrays of strings. Raises UnusualTextError if it cannot."""


def source_of(path: Path) -> Source:
    """The source for a file, by its name and first character."""
    if is_parquet(path):
        return ParquetSource(path)
    line = first_line(path)
    if line.startswith("{"):
        return JsonSource(path)
    return CsvSource(path, [name.strip() for name in next(csv.reader([line]))])


@dataclass(frozen=True, slots=True)
class CsvSource:
    """A CSV file with a header."""

    path: Path
    names: list[str]

    def rows(self, names: Sequence[str]) -> Iterator[NumberedRow]:
        """Rows by line; empty lines are none."""
        places = [self.names.index(name) for name in names]
        with open_text(self.path) as file:
            rows = csv.reader(file)
            next(rows)
            for row in rows:
                if len(row) >= len(self.names):
                    yield rows.line_num, [row[place] for place in places]
                elif row:
                    yield rows.line_num, row

    def blocks(self, names: Sequence[str]) -> Iterable[list[Any]]:
        """Blocks of 16 MiB."""
        import pyarrow as pa
        from pyarrow import csv as arrow

        if len(set(self.names)) < len(self.names):
            raise UnusualTextError
        reader = arrow.open_csv(
            self.path,
            arrow.ReadOptions(block_size=_BLOCK_BYTES, column_names=self.names, skip_rows=1),
            convert_options=arrow.ConvertOptions(
                include_columns=list(names), column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
        with reader:
            for batch in reader:
                yield batch.columns


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file; rows are counted from 1 and their values written as text."""

    path: Path

    @property
    def names(self) -> list[str]:
        """The columns there are."""
        return first_line(self.path).split(",")

    def rows(self, names: Sequence[str]) -> Iterator[NumberedRow]:
        """Rows by number."""
        line = 0
        for columns in self.blocks(names):
            for row in zip(*(column.to_pylist() for column in columns), strict=True):
                line += 1
                yield line, list(row)

    def blocks(self, names: Sequence[str]) -> Iterable[list[Any]]:
        """A block for every 100,000 rows."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with self.path.open("rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(100_000, columns=list(names)):
                texts = (batch.column(name).cast(pa.string()) for name in names)
                yield [pc.fill_null(text, "") for text in texts]


@dataclass(frozen=True, slots=True)
class JsonSource:
    """JSON objects, one a line; ``usage.prompt_tokens`` names a key within a key. Absent values are empty texts."""

    path: Path
    names: None = None

    def rows(self, names: Sequence[str]) -> Iterator[NumberedRow]:
        """Rows by line. A line that is no JSON object is a row cut short."""
        for line, record in json_lines(self.path):
            yield line, [] if isinstance(record, str) else [_text(value_at(record, name)) for name in names]

    def blocks(self, names: Sequence[str]) -> Iterable[list[Any]]:
        """Not at once."""
        raise UnusualTextError


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The JSON objects of a file of one a line, with their lines; of a line that is none, what is wrong with it."""
    with open_text(path) as file:
        for line, text in enumerate(file, start=1):
            if text.isspace():
                continue
            try:
                record = json.loads(text)
                yield line, record if isinstance(record, dict) else "is not a JSON object"
            except json.JSONDecodeError as error:
                yield line, f"is not JSON: {error.msg} at column {error.colno}"


def value_at(record: Any, name: str) -> Any:
    """The value of a key, or of a key within a key (``usage.prompt_tokens``); None when there is none."""
    if isinstance(record, dict) and name in record:
        return record[name]
    for key in name.split("."):
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
