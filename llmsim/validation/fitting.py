"""``calibrate``: fits an accelerator's physical parameters to one's own measurements, as far as these tell.

Least squares on the logarithms of simulated over measured, with a pull towards the catalogue (a Gaussian prior of the
parameters' scales): Tarantola, "Inverse Problem Theory" (2005), section 3.2. A parameter is identified when the data
leave less than ``IDENTIFIED`` of its prior uncertainty; the others stay as they are.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.validation.benchmark_files import TABLE_SUFFIX, read_benchmark
from llmsim.validation.facts import Case, Fact
from llmsim.validation.parameters import PARAMETERS, Parameter, moved
from llmsim.validation.served import Load, Served
from llmsim.validation.tables import read_table

Floats = NDArray[np.float64]

LEAST_POINTS = 3
FITTED = ("ttft", "tpot", "itl", "output_throughput", "prefill", "decode", "mixed", "step")
"""Metrics that are fitted: E2E and request rates follow from them."""
NOISE = 0.05
"""Relative error that measurements and the model's form are expected to have."""
IDENTIFIED = 0.6
STEP = 0.1
"""Of the parameters, in units of their scales, for derivatives: above the grain of a simulation."""
ROUNDS, SHARES, LEAST_MOVE = 3, (1.0, 0.5, 0.2, 0.0), 0.05
"""Of Gauss-Newton steps: how many, the shares of one that are tried, and the move that ends them."""
WORTH = 0.9
"""What must be left of the error, by cross-validation, for a profile to be worth having."""
MOST_LEFT = 0.25
"""Mean size of the logarithms, by cross-validation, beyond which measurements are not of what is simulated."""
MOST_REQUESTS = 1500
"""Simulated for each measurement."""
FOLDS = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted accelerator, and how far it can be trusted."""

    accelerator: AcceleratorSpec
    points: int
    before: float
    """Median relative error with the catalogue's accelerator."""
    after: float
    """The same by cross-validation: of measurements that were left out of the fit."""
    fitted: dict[str, str]
    """Parameters that the measurements identify, and how they moved."""
    refused: tuple[str, ...]
    """Parameters that they do not."""


def calibrate(path: Path, accelerator: str | AcceleratorSpec, processes: int | None = None) -> Calibration:
    """Fit an accelerator to a table of step times or of benchmark results, or to a benchmark tool's result file.

    Raises:
        ScenarioError: for a file that is no such table, fewer than three measurements on the accelerator, or
            measurements that no parameter explains, such as noise.
    """
    spec = load_accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    facts = _facts(path, spec)
    with _executor(processes or os.cpu_count() or 1, facts) as executor:
        fit = _Fit(facts, spec, executor)
        return _checked(fit, path)


def _facts(path: Path, accelerator: AcceleratorSpec) -> list[Fact]:
    table = path.suffix.lower() == TABLE_SUFFIX
    reading = read_table(path) if table else read_benchmark(path, accelerator.name)
    usable = [fact for fact in reading.facts if fact.hardware == accelerator.name and fact.metric.startswith(FITTED)]
    facts = [replace(fact, case=_shortened(fact.case)) for fact in usable]
    if len(facts) < LEAST_POINTS:
        others = sorted({fact.hardware for fact in reading.facts} - {accelerator.name})
        seen = f"; it has measurements on {', '.join(others)}" if others else ""
        raise ScenarioError(
            f"{path}: {len(facts)} measurements on {accelerator.name}; calibration needs at least {LEAST_POINTS}{seen}"
        )
    return facts


def _shortened(case: Case) -> Case:
    if isinstance(case, Served) and isinstance(case.load, Load):
        return replace(case, load=replace(case.load, requests=min(case.load.requests, MOST_REQUESTS)))
    return case


def _executor(processes: int, facts: Sequence[Fact]) -> Any:
    """Several processes for simulations; step times are faster without."""
    simulated = any(isinstance(fact.case, Served) for fact in facts)
    return ProcessPoolExecutor(processes) if simulated and processes > 1 else nullcontext()


class _Fit:
    """Measurements, and how simulations of them answer to the parameters."""

    def __init__(self, facts: Sequence[Fact], accelerator: AcceleratorSpec, executor: Executor | None) -> None:
        self.facts, self.accelerator, self._executor = facts, accelerator, executor
        self._cases = list(dict.fromkeys(fact.case for fact in facts))
        self._known: dict[tuple[float, ...], Floats] = {}

    def errors(self, units: Sequence[float]) -> Floats:
        """Logarithms of simulated over measured, one a fact, at all ``PARAMETERS``."""
        key = tuple(round(each, 9) for each in units)
        if key not in self._known:
            spec = moved(self.accelerator, PARAMETERS, key)
            run = map if self._executor is None else self._executor.map
            found = dict(zip(self._cases, run(_predicted, self._cases, repeat(spec)), strict=True))
            ratios = [found[fact.case].get(fact.metric, fact.value) / fact.value for fact in self.facts]
            self._known[key] = np.log(np.maximum(ratios, 1e-6))
        return self._known[key]

    def typical(self, errors: Floats) -> float:
        """The median size of the relative errors of each metric, averaged over metrics, from logarithms of ratios.

        Not one median over all: below saturation any profile has the throughput right.
        """
        sizes = np.abs(np.expm1(errors))
        metrics = np.array([fact.metric for fact in self.facts])
        return float(np.mean([np.median(sizes[metrics == metric]) for metric in dict.fromkeys(metrics.tolist())]))

    def jacobian(self, units: Floats, chosen: Sequence[int]) -> Floats:
        """Derivatives of the errors by the chosen parameters, shape (facts, chosen)."""
        base = self.errors(units.tolist())
        columns = []
        for index in chosen:
            step = STEP if units[index] + STEP <= PARAMETERS[index].high else -STEP
            there = units.copy()
            there[index] += step
            columns.append((self.errors(there.tolist()) - base) / step)
        return np.stack(columns, axis=1)

    def identified(self) -> list[int]:
        """Parameters of which the data leave little of the prior uncertainty, when all are free."""
        everything = list(range(len(PARAMETERS)))
        jacobian = self.jacobian(np.zeros(len(PARAMETERS)), everything) / NOISE
        left = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian + np.eye(len(everything)))))
        return [index for index in everything if left[index] < IDENTIFIED]

    def solve(self, rows: Sequence[int], chosen: Sequence[int]) -> Floats:
        """The parameters that fit these facts best.

        Gauss-Newton steps, each a bounded linear least squares, with weights that make far outliers count by their
        size and not its square (soft L1), and shortened until they help.
        """
        from scipy.optimize import lsq_linear

        rows, chosen = list(rows), list(chosen)
        units = np.zeros(len(PARAMETERS))
        bounds = tuple([getattr(PARAMETERS[index], side) for index in chosen] for side in ("low", "high"))
        for _ in range(ROUNDS):
            scaled = self.errors(units.tolist())[rows] / NOISE
            weights = (1 + scaled**2) ** -0.25
            slopes = weights[:, None] * self.jacobian(units, chosen)[rows] / NOISE
            target = slopes @ units[chosen] - weights * scaled
            matrix = np.concatenate([slopes, np.eye(len(chosen))])
            found = lsq_linear(matrix, np.concatenate([target, np.zeros(len(chosen))]), bounds)
            step = np.zeros(len(PARAMETERS))
            step[chosen] = found.x - units[chosen]
            moved_to = min((units + share * step for share in SHARES), key=lambda each: self._cost(each, rows))
            done = np.abs(moved_to - units).max() < LEAST_MOVE
            units = moved_to
            if done:
                break
        return units

    def _cost(self, units: Floats, rows: Sequence[int]) -> float:
        """What ``solve`` makes small: soft L1 of the errors, and the pull towards the catalogue."""
        scaled = self.errors(units.tolist())[rows] / NOISE
        return float(2 * (np.sqrt(1 + scaled**2) - 1).sum() + (units**2).sum())


def _predicted(case: Case, accelerator: AcceleratorSpec) -> dict[str, float]:
    return case.predict(accelerator).values


def _checked(fit: _Fit, path: Path) -> Calibration:
    """The fit on all facts, if it holds on facts left out."""
    before = fit.typical(fit.errors([0.0] * len(PARAMETERS)))
    chosen = fit.identified()
    if not chosen:
        raise ScenarioError(f"{path}: identifies no parameter of {fit.accelerator.name}; measure at more loads")
    everything = range(len(fit.facts))
    units = fit.solve(everything, chosen)
    left_out = _cross_validated(fit, chosen)
    after = fit.typical(left_out)
    if np.abs(left_out).mean() > MOST_LEFT or after > WORTH * before:
        raise ScenarioError(
            f"{path}: not calibrated: on measurements left out of the fit the error is {after:.1%}, with the "
            f"catalogue's {fit.accelerator.name} {before:.1%}; what was measured is noise, or not what is simulated"
        )
    moves = {PARAMETERS[i].name: PARAMETERS[i].described(fit.accelerator.efficiency, units[i]) for i in chosen}
    return Calibration(
        accelerator=_named(fit, units, after, path),
        points=len(fit.facts),
        before=before,
        after=after,
        fitted=moves,
        refused=tuple(each.name for index, each in enumerate(PARAMETERS) if index not in chosen),
    )


def _cross_validated(fit: _Fit, chosen: Sequence[int]) -> Floats:
    """Errors of facts by fits without them; facts of one case are left out together."""
    cases = list(dict.fromkeys(fact.case for fact in fit.facts))
    folds = min(FOLDS, len(cases))
    fold = [cases.index(fact.case) % folds for fact in fit.facts]
    left_out = np.zeros(len(fit.facts))
    for each in range(folds):
        inside = [index for index, other in enumerate(fold) if other != each]
        outside = [index for index, other in enumerate(fold) if other == each]
        if inside:
            left_out[outside] = fit.errors(fit.solve(inside, chosen).tolist())[outside]
    return left_out


def _named(fit: _Fit, units: Floats, error: float, path: Path) -> AcceleratorSpec:
    spec = moved(fit.accelerator, PARAMETERS, units.tolist())
    before = " ".join(spec.efficiency.source.split())
    source = f"Calibrated on {len(fit.facts)} measurements of {path.name}, from: {before}"
    efficiency = replace(spec.efficiency, source=source, relative_error=round(error, 4))
    return replace(spec, name=f"{spec.name}-calibrated", efficiency=efficiency)


def profile(calibration: Calibration) -> str:
    """The accelerator as a TOML file that a scenario can name."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in _entries(calibration.accelerator))


def _entries(spec: Any) -> list[tuple[str, Any]]:
    given = [(field.name, getattr(spec, field.name)) for field in fields(spec)]
    return [(key, value) for key, value in given if value is not None]


def _toml(value: Any) -> str:
    """A value as TOML: tables are inline."""
    if is_dataclass(value):
        return _toml(dict(_entries(value)))
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'"{text}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


__all__ = ["Calibration", "Parameter", "calibrate", "profile"]
