"""``validate``: simulates what measured tables ask for and scores it. Between the tables and the report of errors."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmsim.validation.facts import Case, Fact, Prediction, Reading, Reason, SkippedRowError
from llmsim.validation.tables import read_table, shipped

WORST = 10
"""Rows listed of each table."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A fact, what was simulated for it, and how far off that is."""

    fact: Fact
    predicted: float
    diagnosis: str

    @property
    def error(self) -> float:
        """Simulated over measured, less 1."""
        return self.predicted / self.fact.value - 1


@dataclass(frozen=True, slots=True)
class TableErrors:
    """One table, scored."""

    reading: Reading
    scored: list[Scored]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: errors are fractions."""
        reading, scored = self.reading, self.scored
        groups = {
            name: {key: statistics(rows) for key, rows in grouped(scored, name).items()}
            for name in ("source", "hardware", "model")
        }
        return {
            "file": reading.file,
            "kind": reading.kind,
            "rows": reading.rows,
            "scored": self.rows_scored,
            "skipped": {reason.name: len(rows) for reason, rows in sorted(reading.skipped.items())},
            "metrics": {key: statistics(rows) for key, rows in grouped(scored, "metric").items()},
            "by": groups,
            "worst": [_plain(each) for each in self.worst],
        }

    @property
    def rows_scored(self) -> int:
        """Rows with at least one error; a server trace counts with all its rows."""
        if self.reading.kind == "server traces":
            return self.reading.rows - sum(map(len, self.reading.skipped.values())) if self.scored else 0
        return len({each.fact.row for each in self.scored})

    @property
    def worst(self) -> list[Scored]:
        """The rows that are furthest off, the worst first: one for each case."""
        found: dict[Case, Scored] = {}
        for each in sorted(self.scored, key=lambda each: -abs(each.error)):
            found.setdefault(each.fact.case, each)
        return list(found.values())[:WORST]


def validate(paths: Iterable[Path] = (), processes: int | None = None) -> list[TableErrors]:
    """Score every table; without one, those that are shipped.

    ``processes``: how many simulate at a time; None: as many as there are processors.

    Raises:
        ScenarioError: for a file that is no table of a known kind.
    """
    readings = [read_table(path) for path in (list(paths) or shipped())]
    cases = list(dict.fromkeys(fact.case for reading in readings for fact in reading.facts))
    predictions = dict(zip(cases, _predict_all(cases, processes or os.cpu_count() or 1), strict=True))
    return [TableErrors(reading, list(_score(reading, predictions))) for reading in readings]


def statistics(scored: Sequence[Scored]) -> dict[str, float]:
    """How many errors there are, the median, mean and 90 % quantile of their sizes, and their mean (the bias)."""
    errors = np.array([each.error for each in scored])
    sizes = np.abs(errors)
    return {
        "n": len(errors),
        "median": float(np.median(sizes)),
        "mean": float(sizes.mean()),
        "p90": float(np.percentile(sizes, 90)),
        "bias": float(errors.mean()),
    }


def grouped(scored: Sequence[Scored], name: str) -> dict[str, list[Scored]]:
    """The errors by an attribute of their fact, sorted by it."""
    found: dict[str, list[Scored]] = {}
    for each in scored:
        found.setdefault(getattr(each.fact, name), []).append(each)
    return dict(sorted(found.items()))


def predict(case: Case) -> Prediction | str:
    """What a case gives, or why it cannot be simulated."""
    try:
        return case.predict()
    except ValueError as error:  # pydantic's, around a ScenarioError
        return str(error)


def _predict_all(cases: Sequence[Case], processes: int) -> Iterator[Prediction | str]:
    if processes == 1 or len(cases) < 2:
        yield from map(predict, cases)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(predict, cases, chunksize=max(1, min(16, len(cases) // (4 * processes))))


def _score(reading: Reading, predictions: dict[Case, Prediction | str]) -> Iterator[Scored]:
    for fact in reading.facts:
        found = predictions[fact.case]
        if isinstance(found, str):
            reading.skip(SkippedRowError(Reason.memory, found))
        elif fact.metric not in found.values:
            reading.skip(SkippedRowError(Reason.metric, fact.metric))
        else:
            yield Scored(fact, found.values[fact.metric], found.diagnosis)


def _plain(scored: Scored) -> dict[str, Any]:
    fact = scored.fact
    return {
        "row": fact.row,
        "metric": fact.metric,
        "measured": fact.value,
        "simulated": scored.predicted,
        "error": scored.error,
        "source": fact.source,
        "hardware": fact.hardware,
        "model": fact.model,
        "conditions": fact.conditions,
        "diagnosis": scored.diagnosis,
    }
