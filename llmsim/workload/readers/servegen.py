"""Files of ServeGen: the published chunks, or their reduction to two CSV files.

Published tables of lengths are Python dictionaries written as text inside JSON. The ``scale`` of a window is not
read: it does not always agree with the rate.
"""

import ast
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.workload.servegen import LengthTable, ServeGenClient, Window

ARRIVAL_COLUMNS = ["client", "window_start_s", "rate_per_s", "cv", "pattern", "shape", "scale"]
_SUFFIX = "_arrivals.csv"


def is_servegen(path: Path) -> bool:
    """Whether this is a folder of chunks, or the arrivals of a reduced pair."""
    if path.is_dir():
        return any(path.glob("chunk-*-trace.csv"))
    return path.name.endswith(_SUFFIX)


def read_servegen(path: Path) -> list[ServeGenClient]:
    """The clients of a folder of chunks or of a reduced pair, those without a length law left out.

    Raises ScenarioError naming file, line and value.
    """
    clients = _chunks(path) if path.is_dir() else _pair(path)
    known = [client for client in clients if client.prompts and client.outputs and client.windows]
    if not known:
        raise ScenarioError(f"{path}: no client with arrivals and lengths; needs chunk-<i>-trace.csv and "
                            f"chunk-<i>-dataset.json, or *{_SUFFIX} and *_lengths.csv")  # fmt: skip
    return known


def _chunks(folder: Path) -> Iterator[ServeGenClient]:
    found = [
        (int(match[1]), path)
        for path in folder.iterdir()
        if (match := re.fullmatch(r"chunk-(\d+)-trace\.csv", path.name))
    ]
    for number, path in sorted(found):
        windows = [window for line, row in _rows(path) if (window := _window(path, line, row)) is not None]
        dataset = path.with_name(f"chunk-{number}-dataset.json")
        prompts, outputs = _dataset(dataset) if dataset.is_file() else ({}, {})
        yield ServeGenClient(f"client-{number}", sorted(windows), prompts, outputs)


def _pair(arrivals: Path) -> Iterator[ServeGenClient]:
    lengths = arrivals.with_name(arrivals.name.removesuffix(_SUFFIX) + "_lengths.csv")
    if not arrivals.name.endswith(_SUFFIX) or not lengths.is_file():
        raise ScenarioError(f"{arrivals}: needs a file *{_SUFFIX} with a *_lengths.csv beside it")
    windows: dict[str, list[Window]] = {}
    rows = _rows(arrivals)
    if (header := next(rows, (1, []))[1]) != ARRIVAL_COLUMNS:
        raise ScenarioError(f"{arrivals}: columns are {', '.join(header)}; needed: {', '.join(ARRIVAL_COLUMNS)}")
    for line, row in rows:
        if (window := _window(arrivals, line, row[1:])) is not None:
            windows.setdefault(row[0], []).append(window)
    laws: dict[str, dict[str, dict[float, LengthTable]]] = {}
    rows = _rows(lengths)
    header = next(rows, (1, []))[1]
    shares = np.array([int(name[1:]) / 1000 for name in header[3:]])
    for line, (client, start_s, field, *tokens) in rows:
        try:
            law = LengthTable(shares, np.array(tokens, np.float64), steps=False)
            laws.setdefault(client, {}).setdefault(field, {})[float(start_s)] = law
        except ValueError as error:
            raise ScenarioError(f"{lengths} line {line}: {error}") from None
    for client, own in windows.items():
        law_of = laws.get(client, {})
        yield ServeGenClient(
            f"client-{client}", sorted(own), law_of.get("input_tokens", {}), law_of.get("output_tokens", {})
        )


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from ((line, row) for line, row in enumerate(csv.reader(file), start=1) if row)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None


def _window(path: Path, line: int, row: list[str]) -> Window | None:
    """Start, rate, cv, pattern, shape and scale of one window; None when nothing arrives in it."""
    try:
        if float(row[1]) == 0:
            return None
        window = Window(float(row[0]), float(row[1]), row[3], float(row[4]))
        if not (window.rate_per_s > 0 and window.shape > 0 and window.pattern in ("Gamma", "Weibull")):
            raise ValueError
    except (ValueError, IndexError):
        raise ScenarioError(
            f"{path} line {line}: {','.join(row)!r} is not start, rate, cv, Gamma or Weibull, shape, scale"
        ) from None
    return window


def _dataset(path: Path) -> tuple[dict[float, LengthTable], dict[float, LengthTable]]:
    """Laws of prompts and outputs by the start of their window."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        prompts, outputs = (
            {float(start): _probabilities(window[name]) for start, window in data.items() if window.get(name)}
            for name in ("input_tokens", "output_tokens")
        )
    except (OSError, ValueError, SyntaxError, AttributeError, TypeError) as error:
        raise ScenarioError(f"{path}: not a data set of ServeGen: {error}") from None
    return prompts, outputs


def _probabilities(text: Any) -> LengthTable:
    """A table of length: probability, as a dictionary or its text."""
    table = ast.literal_eval(text) if isinstance(text, str) else text
    tokens = np.array(sorted(float(length) for length in table))
    by_length = {float(length): float(share) for length, share in table.items()}
    passed = np.cumsum([by_length[length] for length in tokens.tolist()])
    if not len(tokens) or not passed[-1] > 0:
        raise ValueError("a table of lengths is empty")
    return LengthTable(passed / passed[-1], tokens, steps=True)
