"""Pictures of studies show what was found."""

import itertools

import pytest

from llmsim.report.study_figures import sweep_figure, waterfall_figure
from llmsim.results.breakdown import explain_percentile
from llmsim.study.sweeping import Cell, Sweep
from tests.results.factories import a_record


def a_sweep(**grid: list[object]) -> Sweep:
    """Two seeds at each point, whose figure is the product of the numbers there, and a tenth more."""
    cells = []
    for values in itertools.product(*grid.values()):
        product = 1.0
        for value in values:
            product *= value if isinstance(value, int | float) else 1.0
        settings = dict(zip(grid, values, strict=True))
        cells += [Cell(settings, seed, "stable", {"e2e_s.p50": product * (1 + seed / 10)}, "") for seed in (0, 1)]
    return Sweep("test", grid, tuple(cells))


def test_one_number_is_a_line_with_a_band() -> None:
    band, curve = sweep_figure(a_sweep(rate=[1, 2, 4]), "e2e_s.p50").data
    assert list(curve.x) == [1, 2, 4]
    assert list(curve.y) == pytest.approx([1.05, 2.1, 4.2])
    assert max(band.y) > 4.2 > 1.05 > min(band.y)


def test_words_are_a_line_each() -> None:
    figure = sweep_figure(a_sweep(rate=[1, 2], router=["a", "b"]), "e2e_s.p50")
    assert [trace.name for trace in figure.data if trace.name] == ["router a", "router b"]


def test_two_numbers_are_a_heat_map() -> None:
    (heat,) = sweep_figure(a_sweep(rate=[1, 2], slots=[10, 20]), "e2e_s.p50").data
    assert heat.type == "heatmap"
    assert list(heat.z) == pytest.approx([10.5, 21, 21, 42])


def test_a_waterfall_ends_at_the_whole() -> None:
    found = explain_percentile(a_record(), "e2e", 99)
    (bars,) = waterfall_figure(found).data
    assert sum(bars.y[:-1]) == pytest.approx(bars.y[-1])
    assert bars.measure[-1] == "total"
