"""What the readers of benchmark results share: files as JSON or text, statistics under any tool's names."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.validation.measured import REQUEST_COLUMNS, Columns, Statistics

_NAMES = {"avg": "mean", "median": "p50", "std_dev": "std", "stddev": "std"}


class Format(Protocol):
    """A tool's result files."""

    def recognises(self, data: Any) -> bool:
        """Whether this parsed JSON, list of JSON lines, or text is the tool's."""

    def read(self, data: Any) -> list[Any]:
        """Its runs. May raise KeyError, TypeError or ValueError for what the tool would not write."""


def load(path: Path) -> Any:
    """A file as parsed JSON, as a list when it has an object a line, or else as text. Raises ScenarioError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: is not a text file in UTF-8") from None
    if not text.strip():
        raise ScenarioError(f"{path}: is empty")
    if text.lstrip()[0] not in "[{":
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    try:
        return [json.loads(line) for number, line in lines]
    except json.JSONDecodeError:
        number = next(number for number, line in lines if not _is_json(line))
        raise ScenarioError(f"{path} line {number}: is not JSON") from None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True


def statistics(block: Mapping[str, Any] | None, scale: float = 1.0) -> Statistics:
    """The statistics of a mapping like ``{"avg": 3, "p99": 7}`` under llmsim's names, each times ``scale``."""
    found = {}
    for name, value in (block or {}).items():
        known = _NAMES.get(name, name)
        if re.fullmatch(r"mean|std|min|max|p\d+(\.\d+)?", known) and is_number(value):
            found[known] = value * scale
    return found


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return type(value) in (int, float) and bool(np.isfinite(value))


def known(pairs: Mapping[str, Any], scale: float = 1.0) -> dict[str, float]:
    """Those of the pairs whose value is a number."""
    return {name: value * scale for name, value in pairs.items() if is_number(value)}


def filled(pairs: Mapping[str, Statistics]) -> dict[str, Statistics]:
    """Those of the pairs that have statistics."""
    return {name: values for name, values in pairs.items() if values}


def request_columns(rows: Iterable[Mapping[str, Any]]) -> Columns | None:
    """Columns of requests from rows with the keys of ``REQUEST_COLUMNS``, the earliest at 0; None without rows."""
    table = [[_number(row.get(name)) for name in REQUEST_COLUMNS] for row in rows]
    if not table:
        return None
    columns = dict(zip(REQUEST_COLUMNS, np.array(table, np.float64).T, strict=True))
    arrival_s = columns["arrival_s"]
    if np.isfinite(arrival_s).any():
        columns["arrival_s"] = arrival_s - np.nanmin(arrival_s)
    return columns


def _number(value: Any) -> float:
    return float(value) if is_number(value) else float("nan")
