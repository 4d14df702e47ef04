"""Comparisons: pairs with the same requests, verdicts that follow the intervals, false alarms as seldom as stated."""

import pytest

from llmsim.errors import ScenarioError
from llmsim.scenario import Scenario
from llmsim.study.comparing import Comparison, Effect, compare, false_alarms
from tests.factories import a_linear_cost
from tests.study.factories import an_md1


def faster(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with shorter iterations."""
    return scenario.with_settings({"pools.cost": a_linear_cost(base_s=0.1 * factor, per_token_s=0.0)})


def effect_on(metric: str, comparison: Comparison) -> Effect:
    return next(each for each in comparison.effects if each.metric == metric)


def test_a_faster_server_is_better() -> None:
    scenario = an_md1(requests=300)
    found = compare(scenario, faster(scenario, 0.95), pairs=4)
    wait = effect_on("ttft_s.p50", found)
    assert wait.verdict == "better"
    assert wait.change.low < -0.05 < wait.change.high < 0
    assert effect_on("ttft_s.p50", compare(faster(scenario, 0.9), scenario, pairs=3)).verdict == "worse"
    assert {each.metric for each in found.effects} >= {"e2e_s.p99", "request_throughput_per_s"}
    assert len(found.frame) == len(found.effects)


def test_the_same_is_no_different() -> None:
    scenario = an_md1(requests=100)
    found = compare(scenario, scenario, pairs=3)
    assert {each.verdict for each in found.effects} == {"no difference seen"}
    assert all(each.change == (0.0, 0.0, 0.0) for each in found.effects)


def test_noise_asks_for_more_pairs() -> None:
    """A change of 5 % under a run noise of 10 %: two pairs cannot tell, and it says how many could."""
    scenario = an_md1(requests=100, rate_per_s=0.5)
    found = compare(scenario, faster(scenario, 0.95), pairs=2, noise_cv=0.1)
    tail = effect_on("e2e_s.p50", found)
    assert tail.verdict == "too few"
    assert tail.pairs_needed > 10
    assert tail.power < 0.5


def test_pairs_with_the_same_requests_need_fewer_runs() -> None:
    """Waits of queues vary far more between seeds than their ratio does when the requests are the same."""
    scenario = an_md1(requests=200)
    other = faster(scenario, 0.97)
    paired = effect_on("e2e_s.p99", compare(scenario, other, pairs=6))
    apart = effect_on("e2e_s.p99", compare(scenario, other.with_settings({"seed": 100}), pairs=6))
    assert paired.change.half_width < apart.change.half_width / 3


def test_false_alarms_are_as_seldom_as_the_interval_says() -> None:
    share = false_alarms(an_md1(requests=80), "ttft_s.p50", pairs=6, noise_cv=0.03, runs=48)
    assert 0.03 <= share <= 0.07


def test_one_pair_has_no_error_estimate() -> None:
    with pytest.raises(ScenarioError, match="pairs = 1"):
        compare(an_md1(), an_md1(), pairs=1)
    with pytest.raises(ScenarioError, match="runs = 3"):
        false_alarms(an_md1(), "ttft_s.p50", pairs=2, runs=3)
