"""What differs between the results of two runs that should be the same run."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from llmsim.results.record import Columns
from llmsim.results.results import Results
from llmsim.scenario import Scenario
from llmsim.simulation import simulate

HOW_IT_WAS_COMPUTED = ("events", "leaped_iterations")
"""What the simulator did is not a result."""


def stepped(scenario: Scenario) -> Scenario:
    """The scenario without leaps."""
    return replace(scenario, run=replace(scenario.run, leap=False))


def share_leaped(scenarios: Iterable[tuple[int, Scenario]]) -> float:
    """The share of iterations leaped over in scenarios, told by seed; stepping must give the same results."""
    iterations = leaped = 0
    for seed, scenario in scenarios:
        with_leaps, one_by_one = simulate(scenario), simulate(stepped(scenario))
        assert differences(with_leaps, one_by_one) == [], f"scenario of seed {seed}"
        assert one_by_one.facts.leaped_iterations == 0
        iterations += len(with_leaps.record.iterations["end_s"])
        leaped += with_leaps.facts.leaped_iterations
    return leaped / iterations


def differences(left: Results, right: Results) -> list[str]:
    """Names of all columns, sums and figures that are not the same to the last bit."""
    tables = ("requests", "iterations", "preemptions")
    pairs = [(name, getattr(left.record, name), getattr(right.record, name)) for name in tables]
    found = [f"{name}.{column}" for name, a, b in pairs for column in different_columns(a, b)]
    sums, others = _figures(left), _figures(right)
    return found + [name for name in sums if not _same(sums[name], others[name])]


def different_columns(left: Columns, right: Columns) -> list[str]:
    """Names of the columns that are not the same to the last bit, NaN being itself."""
    assert left.keys() == right.keys()
    return [name for name in left if not _same(left[name], right[name])]


def rows(columns: Columns, chosen: Any) -> Columns:
    """Some rows of a table."""
    return {name: column[chosen] for name, column in columns.items()}


def times(columns: Columns, change: Callable[[Any], Any]) -> Columns:
    """A table with every time in whole nanoseconds and ``change`` made to them; -1 is a time that never came."""
    return {
        name: _changed(column, change) if name.endswith("_s") and column.dtype == np.float64 else column
        for name, column in columns.items()
    }


def _changed(column: Any, change: Callable[[Any], Any]) -> Any:
    never = np.isnan(column)
    return np.where(never, -1, change(np.rint(np.where(never, 0, column) * 1e9).astype(np.int64)))


def _figures(results: Results) -> dict[str, Any]:
    totals = results.record.totals
    summary = {key: value for key, value in results.figures().items() if key not in HOW_IT_WAS_COMPUTED}
    return {
        **{f"totals.{name}": getattr(totals, name) for name in totals.__slots__},
        **{f"summary.{path}": value for path, value in _leaves(summary)},
    }


def _leaves(tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{path}", leaf) for path, leaf in _leaves(value))
        else:
            yield key, value


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) and left.dtype != object:
        return bool(left.dtype == right.dtype) and left.tobytes() == right.tobytes()
    if isinstance(left, np.ndarray):
        return bool(left.tolist() == right.tolist())
    return bool(left == right)
