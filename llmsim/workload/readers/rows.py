"""What readers share: rows as whole numbers, with faults named by line; CSV files; the table made of them."""

import csv
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from re import compile as pattern
from typing import Any, TypeVar

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.units import NS_PER_S
from llmsim.workload.table import Ints, RequestTable

_LARGEST = 2**62
"""Leaves room in an int64 to take the difference of two."""
_Raw = TypeVar("_Raw")
_Row = TypeVar("_Row")
Convert = Callable[[str], int]
"""The text of one field as an integer. Raises ValueError saying what is allowed."""


def tokens(text: str) -> int:
    """A number of tokens. 0 is refused: a request has a prompt, and one that generated nothing has failed."""
    if text.isdecimal() and (count := int(text)) >= 1:
        return count
    raise ValueError("is not a whole number >= 1")


def whole_number(text: str) -> int:
    """Any whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number") from None


def seconds(text: str) -> int:
    """Seconds in decimal notation as nanoseconds, exact however large."""
    try:
        return int((Decimal(text) * NS_PER_S).to_integral_value())
    except (ArithmeticError, ValueError):
        raise ValueError("is not a number of seconds") from None


_TIMESTAMP = pattern(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(text: str) -> int:
    """A date and time, without a zone taken as UTC, as nanoseconds since 1970, exact to the last digit."""
    try:
        if not (parts := _TIMESTAMP.fullmatch(text)):
            raise ValueError
        second, fraction, zone = parts.groups(default="")
        since = datetime.fromisoformat(second + (zone or "Z")) - _EPOCH
    except ValueError:
        raise ValueError("is not a time like 2023-11-16 18:15:46.6805900") from None
    return (since.days * 86_400 + since.seconds) * NS_PER_S + int(fraction.ljust(9, "0"))


def good_rows(
    path: Path,
    numbered: Iterable[tuple[int, _Raw]],
    convert: Callable[[_Raw], _Row],
    limit: int | None,
    skip_bad_rows: bool,
) -> Iterator[_Row]:
    """The first ``limit`` rows that ``convert`` takes; rows come with their line in the file.

    Raises ScenarioError at the first that it refuses with a ValueError, or, with ``skip_bad_rows``, when it
    refused all. Warns of how many were skipped.
    """
    kept, skipped, first_fault = 0, 0, ""
    for line, raw in numbered:
        if kept == limit:
            break
        try:
            row = convert(raw)
        except ValueError as error:
            first_fault = first_fault or f"{path} line {line}: {error}"
            if not skip_bad_rows:
                raise ScenarioError(f'{first_fault}; to leave such rows out: on_bad_rows = "skip"') from None
            skipped += 1
            continue
        kept += 1
        yield row
    if not kept:
        raise ScenarioError(first_fault or f"{path}: the trace has no rows")
    if skipped:
        warnings.warn(f"{path}: {skipped} bad rows skipped, {kept} kept; the first: {first_fault}", stacklevel=2)


def trace_table(path: Path, arrival_ns: Ints, **columns: Any) -> RequestTable:
    """The table of a trace, the earliest arrival at 0. Warns when rows are not in order of arrival."""
    if backwards := int(np.sum(np.diff(arrival_ns) < 0)):
        warnings.warn(f"{path}: {backwards} rows are earlier than the row before; sorted by arrival", stacklevel=2)
    return RequestTable.build(arrival_ns=arrival_ns - arrival_ns.min(), **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """A CSV file with a header and one request a row; other columns are not read."""

    name: str
    arrival: tuple[str, Convert]
    prompt_tokens: str
    output_tokens: str
    optional: tuple[tuple[str, Convert], ...] = ()
    """Columns of the request table by their own names, read where the file has them."""

    @property
    def example(self) -> str:
        """The header."""
        return ",".join(self._required())

    def recognises(self, first_line: str) -> bool:
        """Whether at most one column is missing: a header with one fault is named, not just unknown."""
        return len(set(self._required()) & set(_header(csv.reader([first_line])))) >= 2

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The requests. Raises ScenarioError for a missing column or a bad row."""
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = _header(rows)
            if missing := [name for name in self._required() if name not in header]:
                raise ScenarioError(f"{path}: missing column {', '.join(missing)}; found: {', '.join(header)}")
            required = {
                self.arrival[0]: self.arrival[1],
                self.prompt_tokens: tokens,
                self.output_tokens: tokens,
            }
            columns = required | {name: convert for name, convert in self.optional if name in header}
            places = [(header.index(name), name, convert) for name, convert in columns.items()]

            def convert_row(row: list[str]) -> tuple[int, ...]:
                if len(row) < len(header):
                    raise ValueError(f"has {len(row)} fields, the header has {len(header)}")
                return tuple(_field(name, row[place], convert) for place, name, convert in places)

            numbered = ((rows.line_num, row) for row in rows if row)
            good = good_rows(path, numbered, convert_row, limit, skip_bad_rows)
            table: Ints = np.fromiter(good, np.dtype((np.int64, len(places))))
        names = ("prompt_tokens", "output_tokens", *list(columns)[3:])
        return trace_table(path, table[:, 0], **dict(zip(names, table.T[1:], strict=True)))

    def _required(self) -> tuple[str, str, str]:
        return self.arrival[0], self.prompt_tokens, self.output_tokens


def _header(rows: Iterator[list[str]]) -> list[str]:
    return [name.strip() for name in next(rows)]


def _field(name: str, text: str, convert: Convert) -> int:
    try:
        if abs(value := convert(text.strip())) > _LARGEST:
            raise ValueError("is too large")
        return value
    except ValueError as error:
        raise ValueError(f"{name} '{text}' {error}") from None
