"""Several seeds: intervals that hold what theory says, and a warm-up that is found."""

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.study.replications import find_warm_up, replicate
from tests.study.factories import SERVICE_S, an_md1, md1_wait_s


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_the_engine_is_within_its_interval_of_a_law(load: float) -> None:
    found = replicate(an_md1(rate_per_s=load / SERVICE_S, requests=1000), 8).interval("ttft_s.mean")
    assert found.low <= md1_wait_s(load) + SERVICE_S <= found.high
    assert found.relative_half_width < 0.1


def test_figures_come_with_their_intervals() -> None:
    found = replicate(an_md1(requests=300), 3)
    frame = found.frame().set_index("figure")
    assert tuple(frame.loc["ttft_s.p99"]) == tuple(found.interval("ttft_s.p99"))
    assert (frame["low"] <= frame["high"]).sum() > 20
    assert "seed" not in frame.index


def test_saturated_runs_are_called_so() -> None:
    assert "3 saturated" in replicate(an_md1(rate_per_s=15.0, requests=500), 3).verdict
    assert "3 stable" in replicate(an_md1(rate_per_s=3.0, requests=500), 3).verdict


def test_a_wide_interval_asks_for_more() -> None:
    found = replicate(an_md1(requests=200), 3)
    assert "are needed" in found.advice("ttft_s.p99", wanted=1e-4)
    assert found.advice("ttft_s.p99", wanted=10.0).startswith("ttft_s.p99 is known to")


def test_a_planted_warm_up_is_left_out() -> None:
    rng = np.random.default_rng(0)
    arrival_s = np.arange(2000.0)
    latency_s = rng.normal(1.0, 0.05, 2000) + np.where(arrival_s < 300, 5.0, 0.0)
    columns = {"outcome": np.full(2000, "finished"), "arrival_s": arrival_s, "finish_s": arrival_s + latency_s}
    warm_up_s, told = find_warm_up(columns)
    assert warm_up_s == pytest.approx(300, abs=5)
    assert "300 requests" in told
    assert find_warm_up({**columns, "finish_s": arrival_s * 1.5})[0] == 0.0


def test_a_given_warm_up_stays() -> None:
    found = replicate(an_md1(requests=300, warm_up_s=7.0), 2)
    assert found.scenario.run.warm_up_s == 7.0
    assert "as given" in found.warm_up


def test_one_run_has_no_interval() -> None:
    with pytest.raises(ScenarioError, match="at least 2"):
        replicate(an_md1(), 1)
