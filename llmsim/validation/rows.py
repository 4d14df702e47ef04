"""Rows of tables: cells as numbers, and settings that are written as ``key=value`` in a text."""

import re
from collections.abc import Mapping

from llmsim.validation.facts import Reason, SkippedRowError

Row = Mapping[str, str]

_UNKNOWN = ("", "?", "-", "nan", "none", "unstated", "unknown")


def number(row: Row, column: str) -> float | None:
    """The number of a cell; None when the cell or the column is empty or absent.

    Raises SkippedRowError when it is something else than a number.
    """
    text = row.get(column, "").strip()
    if text.lower() in _UNKNOWN:
        return None
    try:
        return float(text)
    except ValueError:
        raise SkippedRowError(Reason.value, f"{column} = {text}") from None


def required(row: Row, column: str) -> float:
    """The number of a cell. Raises SkippedRowError when there is none."""
    found = number(row, column)
    if found is None:
        raise SkippedRowError(Reason.setting, column)
    return found


def whole(row: Row, column: str) -> int | None:
    """The number of a cell as an integer; None when there is none."""
    found = number(row, column)
    return None if found is None else round(found)


def settings(text: str) -> dict[str, str]:
    """The ``key=value`` pairs of a text, such as ``V1; max_num_seqs=8 (the sweep knob)``."""
    return {key.lower(): value for key, value in re.findall(r"([A-Za-z_]+)\s*=\s*([\w.]+)", text)}


def version(text: str) -> tuple[int, int] | None:
    """The first ``major.minor`` of a text; None when there is none."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
