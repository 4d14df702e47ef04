"""A grid of scenarios, each under the same seeds: finished cells are files, so that a killed sweep goes on."""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.results.statistics import Interval, t_interval
from llmsim.scenario import Scenario
from llmsim.scenario.settings import parse_value
from llmsim.study.running import Backend, OnProgress, figures, run_all, run_once, seeds_of

if TYPE_CHECKING:
    import pandas as pd

Settings = dict[str, Any]


class Cell(NamedTuple):
    """One run of a sweep: where in the grid, and what came out."""

    settings: Settings
    seed: int
    verdict: str
    """stable, saturated, short, unknown; refused: the scenario is not possible."""
    figures: dict[str, float]
    """Numbers of the summary by dotted key; empty when refused."""
    fault: str
    """Why it was refused; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """All cells of a sweep, in the order of the grid."""

    scenario: str
    grid: dict[str, list[Any]]
    cells: tuple[Cell, ...]

    @property
    def frame(self) -> "pd.DataFrame":
        """A row a run: the keys of the grid, ``seed``, ``verdict``, ``fault``, and the figures."""
        import pandas as pd

        rows = [
            {**cell.settings, "seed": cell.seed, "verdict": cell.verdict, "fault": cell.fault, **cell.figures}
            for cell in self.cells
        ]
        return pd.DataFrame(rows)

    def intervals(self, metric: str) -> list[tuple[Settings, Interval]]:
        """A figure at each point of the grid, with its interval over the seeds.

        Raises:
            ScenarioError: when no cell has such a figure.
        """
        known = {key for cell in self.cells for key in cell.figures}
        if metric not in known:
            raise ScenarioError(f"metric {metric}: no such figure; allowed are {', '.join(sorted(known))}")
        points: dict[str, tuple[Settings, list[float]]] = {}
        for cell in self.cells:
            _, values = points.setdefault(_json(cell.settings), (cell.settings, []))
            values.append(cell.figures.get(metric, float("nan")))
        return [(settings, _interval(values)) for settings, values in points.values()]


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]],
    *,
    replications: int = 1,
    jobs: int = 1,
    backend: Backend = "loky",
    folder: str | Path | None = None,
    progress: OnProgress | None = None,
) -> Sweep:
    """Run a scenario with every combination of the grid's values, each under the same seeds.

    ``grid`` maps dotted keys to values. With a ``folder`` each finished cell is a file in it at once, and cells that
    are there already are not run again: the same call after a kill goes on where it was. With several machines the
    folder must be one they share. A combination that is not possible, for example a model that does not fit, is a
    row with its fault.

    Raises:
        ScenarioError: for an empty grid, or when no combination is possible.
    """
    values = {key: list(each) for key, each in grid.items()}
    if not values or not all(values.values()) or replications < 1:
        raise ScenarioError("a sweep needs keys with at least one value each, and one replication or more")
    cells = Path(folder) / "cells" if folder is not None else None
    if cells is not None:
        cells.mkdir(parents=True, exist_ok=True)
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    tasks, refused = _tasks(scenario, combinations, replications)
    if not tasks:
        raise ScenarioError(next(iter(refused.values()))[0].fault)
    found = iter(run_all(partial(_cell, cells), tasks, jobs, backend, progress))
    ordered = [
        cell
        for number in range(len(combinations))
        for cell in refused.get(number) or list(itertools.islice(found, replications))
    ]
    return Sweep(scenario.name, values, tuple(ordered))


def _tasks(
    scenario: Scenario, combinations: list[Settings], replications: int
) -> tuple[list[tuple[Settings, Scenario]], dict[int, list[Cell]]]:
    """The runs of all combinations that are possible, and by number the cells of those that are not."""
    tasks, refused = [], {}
    for number, settings in enumerate(combinations):
        try:
            tasks += [(settings, each) for each in seeds_of(scenario.with_settings(settings), replications)]
        except ScenarioError as error:
            refused[number] = [
                Cell(settings, scenario.seed + seed, "refused", {}, str(error)) for seed in range(replications)
            ]
    return tasks, refused


def parse_grid(lines: Sequence[str]) -> dict[str, list[Any]]:
    """``key=a,b,c`` texts as a grid; the values are a TOML array or split at commas.

    Raises:
        ScenarioError: for a text without key, ``=`` or values.
    """
    grid: dict[str, list[Any]] = {}
    for line in lines:
        key, _, text = (part.strip() for part in line.partition("="))
        if not key or not text:
            raise ScenarioError(f"--grid {line}: needs key=a,b,c, such as workload.rate_per_s=2,4,8")
        if text.startswith("["):
            grid[key] = list(parse_value(text))
        else:
            grid[key] = [parse_value(part.strip()) for part in re.split(",", text) if part.strip()]
    return grid


def _cell(folder: Path | None, task: tuple[Settings, Scenario]) -> Cell:
    """Run a cell, or read it when it has been run before."""
    settings, scenario = task
    path = folder / f"{_key(scenario)}.json" if folder is not None else None
    if path is not None and path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
        numbers = {key: float("nan") if value is None else value for key, value in stored["figures"].items()}
        return Cell(settings, scenario.seed, stored["verdict"], numbers, "")
    outcome = run_once(scenario)
    numbers = {key: value for key, value in figures(outcome.summary).items() if key not in ("schema_version", "seed")}
    if path is not None:
        strict = {key: None if np.isnan(value) else value for key, value in numbers.items()}
        stored = {"settings": settings, "seed": scenario.seed, "verdict": outcome.stability.verdict, "figures": strict}
        _write(path, _json(stored))
    return Cell(settings, scenario.seed, outcome.stability.verdict, numbers, "")


def _key(scenario: Scenario) -> str:
    """What decides the run: the scenario, this version of llmsim, and the trace file as it is now."""
    from importlib.metadata import version

    # The record level decides what is kept, not what happens.
    told = [version("llmsim"), replace(scenario, run=replace(scenario.run, record="requests")).canonical()]
    trace = getattr(scenario.workload, "path", None)
    if isinstance(trace, Path) and trace.is_file():
        status = trace.stat()
        told.append(f"{status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:32]


def _write(path: Path, text: str) -> None:
    """The whole file or none of it, whenever the process is killed."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def _interval(values: list[float]) -> Interval:
    known = np.array(values)
    return t_interval(known[~np.isnan(known)])
