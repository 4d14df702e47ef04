"""What readers share: rows of a CSV file as integer columns, faults named by line."""

import csv
import warnings
from array import array
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.units import NS_PER_S
from llmsim.workload.table import Ints

Convert = Callable[[str], int]
"""Text of one field to an integer. Raises ValueError saying what is allowed."""


def tokens(text: str) -> int:
    """A number of tokens: a request has at least one each way (0 output tokens mark a failed request)."""
    if text.isdecimal() and (count := int(text)) >= 1:
        return count
    raise ValueError("is not a whole number >= 1")


def whole_number(text: str) -> int:
    """Any whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number") from None


def seconds_to_ns(text: str) -> int:
    """Seconds, read as a decimal number: exact to the nanosecond however large."""
    try:
        return int((Decimal(text) * NS_PER_S).to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        raise ValueError("is not a number of seconds") from None


def read_csv(
    path: Path,
    required: Mapping[str, Convert],
    optional: Mapping[str, Convert],
    limit: int | None,
    skip_bad_rows: bool,
) -> dict[str, Ints]:
    """The named columns of the first ``limit`` rows, in the order of the file.

    Raises ScenarioError when a column is missing, at a bad value, and when no row is left. Warns of skipped rows.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        header = [name.strip() for name in next(rows, [])]
        if missing := [name for name in required if name not in header]:
            raise ScenarioError(f"{path}: missing column {', '.join(missing)}; found: {', '.join(header)}")
        converters = {name: convert for name, convert in (required | optional).items() if name in header}
        places = [(header.index(name), name, convert) for name, convert in converters.items()]
        columns = {name: array("q") for name in converters}
        faults = Faults(path, skip_bad_rows)
        for row in rows:
            if len(columns[header[places[0][0]]]) == limit:
                break
            try: ...
    return {}
