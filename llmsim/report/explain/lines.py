"""What an explanation is made of: lines with their formula, tables, and the notes between them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from llmsim.closed_form import Line


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
