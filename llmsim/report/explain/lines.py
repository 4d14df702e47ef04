"""What an explanation is made of: lines with their formula, tables, and the notes between them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Line(NamedTuple):
    """A figure, how it comes about, and from which numbers."""

    key: str
    label: str
    value: float
    unit: str = ""
    """bytes, s, FLOP, FLOP/s, FLOP/byte, bytes/s, tokens, 1/s, USD; empty for counts and ratios."""
    formula: str = ""
    """Arithmetic over the names of ``terms``; empty for a fact."""
    terms: Mapping[str, float] = {}

    @property
    def numbers(self) -> str:
        """The formula with the numbers filled in: arithmetic that gives the value."""
        return re.sub(r"[A-Za-z_]\w*", self._number, self.formula)

    def as_dict(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {"value": self.value, "unit": self.unit, "formula": self.formula, "numbers": self.numbers}

    def _number(self, match: re.Match[str]) -> str:
        value = self.terms.get(match.group())
        return match.group() if value is None else plain_number(value)


class Column(NamedTuple):
    """A column of a table: its key, its heading, and the unit of its cells."""

    key: str
    heading: str
    unit: str = ""


class Table(NamedTuple):
    """Rows of figures under headings."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: list[tuple[float | str | None, ...]]

    def as_rows(self) -> list[dict[str, Any]]:
        """The rows as JSON values."""
        return [{column.key: cell for column, cell in zip(self.columns, row, strict=True)} for row in self.rows]


@dataclass(slots=True)
class Section:
    """One part of an explanation."""

    key: str
    title: str
    lines: list[Line]
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The section as JSON values: each line and table under its key."""
        return {
            **{line.key: line.as_dict() for line in self.lines},
            **{table.key: table.as_rows() for table in self.tables},
            "notes": self.notes,
        }

    def __getitem__(self, key: str) -> Line:
        """The line of that key."""
        return next(line for line in self.lines if line.key == key)


def plain_number(value: float) -> str:
    """A number as one writes it in arithmetic: whole below a million, otherwise with five digits."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.5g}"
