"""Plans: 100 million daily users against the back of the envelope, and why the losers lost."""

from pathlib import Path

import pytest

from llmsim import load_scenario
from llmsim.errors import ScenarioError
from llmsim.scenario import Scenario
from llmsim.study.candidates import Choices
from llmsim.study.planning import Plan, Traffic, plan

FILE = Path(__file__).parent.parent.parent / "scenarios" / "hundred_million_users.toml"
TRAFFIC = Traffic.of_users(100e6, 5, 2.5)
FOUR_H100 = Choices(accelerators=("h100-sxm",), tensor_parallel_sizes=(4,))


@pytest.fixture(scope="module")
def chat() -> Scenario:
    return load_scenario(FILE, ["workload.requests=300"])


@pytest.fixture(scope="module")
def found(chat: Scenario) -> Plan:
    choices = Choices(accelerators=("h100-sxm", "l40s", "l4"), tensor_parallel_sizes=(1, 2, 4))
    return plan(chat, TRAFFIC, choices, searched=2)


def test_the_traffic_is_the_arithmetic_of_the_question() -> None:
    assert (round(TRAFFIC.average_per_s), round(TRAFFIC.peak_per_s)) == (5787, 14468)


def test_it_lands_near_its_closed_form_and_says_why_it_differs(chat: Scenario) -> None:
    found = plan(chat, TRAFFIC, FOUR_H100)
    best = found.best
    gpus = best.replicas * best.candidate.gpus
    assert gpus == pytest.approx(found.closed_form_gpus, rel=0.25)
    assert 3138 / 1.5 < gpus / 1.5 < 2 * 3138
    assert best.with_headroom == pytest.approx(1.25 * best.replicas, abs=1)
    assert "tpot_p99_s" in found.difference or "slower than they come" in found.difference
    assert "no runner-up" in found.margin


def test_the_cheapest_wins_and_each_loser_has_a_reason(found: Plan) -> None:
    costs = [option.usd_per_month for option in found.options]
    assert costs == sorted(costs)
    assert found.best.pareto
    names = [option.candidate.name for option in found.options] + [loser.name for loser in found.losers]
    assert len(set(names)) == len(names) == 9
    reasons = {loser.name: loser.reason for loser in found.losers}
    assert "does not fit" in reasons["l4, TP 1"]
    assert all(reasons.values())


def test_money_adds_up(found: Plan) -> None:
    best = found.best
    price = best.candidate.scenario.pools[0].accelerator.price_usd_per_hour
    assert price is not None
    assert best.usd_per_month == pytest.approx(best.gpus * price * 730)
    tokens_a_month = TRAFFIC.average_per_s * 1250 * 3600 * 730
    assert best.usd_per_million_tokens == pytest.approx(best.usd_per_month / tokens_a_month * 1e6)


def test_assumptions_are_ranked_by_what_they_move(found: Plan) -> None:
    widths = [abs(swing.high_usd_per_month - swing.low_usd_per_month) for swing in found.tornado]
    assert widths == sorted(widths, reverse=True)
    prompts = next(swing for swing in found.tornado if swing.assumption.startswith("prompt tokens"))
    assert prompts.low_usd_per_month < found.best.usd_per_month < prompts.high_usd_per_month
    assert "more than" in found.margin or "within" in found.margin


def test_what_nothing_serves_is_refused(chat: Scenario) -> None:
    with pytest.raises(ScenarioError, match="nothing serves it"):
        plan(chat.with_settings({"slo": {"ttft_p99_s": 1e-3}}), TRAFFIC, FOUR_H100)
    with pytest.raises(ScenarioError, match="peak_per_s"):
        plan(chat, Traffic(0.0, 0.0), FOUR_H100)
