"""Which kind of table a CSV file is, by its columns, and what facts it holds: the one parser of measured tables."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from llmsim.errors import ScenarioError
from llmsim.validation import kernel_steps, kv_capacities, load_curves, measured_values, server_traces
from llmsim.validation.facts import Reading
from llmsim.validation.rows import Row


class Kind(NamedTuple):
    """A kind of table."""

    name: str
    columns: tuple[str, ...]
    """What it needs; further columns may be there or not."""
    read: Callable[[Sequence[Row], Reading], None]


KINDS = tuple(
    Kind(module.KIND, module.COLUMNS, module.read)
    for module in (measured_values, kernel_steps, kv_capacities, load_curves, server_traces)
)
"""Every kind, the most telling columns first: a table is of the first kind whose columns it has."""

SHIPPED = Path(__file__).parent / "shipped"
"""About 300 facts with their sources, drawn by ``tools/draw_validation_set.py`` before any error was seen."""


def shipped() -> list[Path]:
    """The tables that come with llmsim."""
    return sorted(SHIPPED.glob("*.csv"))


def read_table(path: Path) -> Reading:
    """The facts of a table, and the rows left out.

    Raises:
        ScenarioError: when the file cannot be read, holds no rows, or is of no known kind.
    """
    rows = read_rows(path)
    kind = kind_of(rows, path)
    reading = Reading(str(path), kind.name, len(rows))
    kind.read(rows, reading)
    return reading


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file with a header.

    Raises:
        ScenarioError: when the file cannot be read or holds no rows.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [{key: value or "" for key, value in row.items() if key} for row in csv.DictReader(file)]
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: not a CSV file: {error}") from None
    if not rows:
        raise ScenarioError(f"{path}: holds no rows; needs a header and a row a measurement")
    return list(rows)


def kind_of(rows: Sequence[Row], path: Path) -> Kind:
    """The kind of a table.

    Raises:
        ScenarioError: naming for each kind the columns it lacks.
    """
    columns = rows[0].keys()
    for kind in KINDS:
        if columns >= set(kind.columns):
            return kind
    lacks = [f"{kind.name} (lacks {', '.join(sorted(set(kind.columns) - columns))})" for kind in KINDS]
    raise ScenarioError(f"{path}: no known kind of table; known: {'; '.join(lacks)}")
