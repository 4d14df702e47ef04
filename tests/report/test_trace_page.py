"""Pictures of a trace show what is in it."""

import numpy as np
import pytest

from llmsim.report.trace_page import arrivals_figure, lengths_figure, pairs_figure, trace_page
from llmsim.report.trace_text import trace_text
from llmsim.workload import PresetWorkload
from llmsim.workload.describe import Recorded, describe


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded(PresetWorkload(requests=3_000).generate(0), True, ["a note with <angles>"])


def test_the_rate_over_time_adds_up_to_the_requests(recorded: Recorded) -> None:
    rate, gaps, poisson = arrivals_figure(recorded).data
    width_s = rate.x[1] - rate.x[0]
    assert np.sum(rate.y) * width_s == pytest.approx(3_000)
    # Arrivals of a slowly changing rate are almost Poisson: the curves lie together.
    assert np.abs(np.log(gaps.y / poisson.y))[gaps.y > 0.02].max() < 0.5


def test_shares_of_lengths_rise_to_one(recorded: Recorded) -> None:
    for line, tokens in zip(
        lengths_figure(recorded).data, (recorded.table.prompt_tokens, recorded.table.output_tokens), strict=True
    ):
        assert line.y[-1] == 1
        assert line.x[-1] == tokens.max()
        middle = np.searchsorted(line.y, 0.5)
        assert line.x[middle] == pytest.approx(np.median(tokens), rel=0.02)


def test_every_request_is_a_dot_when_they_are_few(recorded: Recorded) -> None:
    (dots,) = pairs_figure(recorded).data
    np.testing.assert_array_equal(dots.x, recorded.table.prompt_tokens)


def test_a_file_without_times_is_drawn_without_arrivals(recorded: Recorded) -> None:
    figure = arrivals_figure(Recorded(recorded.table, False, []))
    assert not figure.data
    assert "no times of arrival" in figure.layout.annotations[0].text


def test_the_page_holds_the_text_safely(recorded: Recorded) -> None:
    description = describe(recorded)
    page = trace_page("a <name>", recorded, description)
    assert "a &lt;name&gt;" in page
    assert "a note with &lt;angles&gt;" in page
    assert "3,000" in page
    assert "a note with <angles>" in trace_text("name", description)
