"""The verdict says what the summary says, and calls a queue that grows unstable."""

import pytest

from llmsim.report.verdict import judge, stability
from tests.report.runs import a_queue, the_story


def test_a_met_slo_tells_what_is_left() -> None:
    verdict = judge(the_story(slo={"e2e_max_s": 0.44}))
    assert (verdict.status, verdict.headline) == ("met", "SLO met")
    assert verdict.targets == ("E2E max is 220 ms, limit 440 ms: 50 % to spare.",)


def test_a_missed_slo_tells_by_how_much_the_worst_first() -> None:
    verdict = judge(the_story(slo={"ttft_max_s": 1.0, "e2e_max_s": 0.2, "tpot_max_s": 0.006}))
    assert (verdict.status, verdict.headline) == ("missed", "SLO missed: 2 of 3 limits")
    assert verdict.targets[0] == "TPOT max is 60 ms, limit 6 ms: 10.0 times the limit."
    assert verdict.targets[1] == "E2E max is 220 ms, limit 200 ms: 10 % over the limit."
    assert verdict.targets[2].endswith("85 % to spare.")


def test_without_an_slo_the_tails_are_told() -> None:
    verdict = judge(the_story())
    assert (verdict.status, verdict.headline) == ("none", "No SLO stated")
    assert "TTFT p99 is 1" in verdict.targets[0]


def test_an_slo_without_requests_is_not_judged() -> None:
    assert judge(the_story(slo={"ttft_p99_s": 1.0}, window_start_s=0.4)).status == "none"


@pytest.mark.parametrize("seed", range(5))
def test_a_server_below_saturation_is_stable(seed: int) -> None:
    assert stability(a_queue(load=0.8, seed=seed)).startswith("Stable")


@pytest.mark.parametrize("seed", range(5))
def test_a_server_above_saturation_is_not(seed: int) -> None:
    told = stability(a_queue(load=1.4, seed=seed))
    assert told.startswith("Not stable")
    assert stability(a_queue(load=1.4, seed=seed, ends_s=1000.0)).startswith("Not stable")


def test_little_is_said_of_few_requests() -> None:
    assert stability(a_queue(load=1.4, requests=50)).startswith("Stability cannot be told")
    assert stability(a_queue(load=1.4, requests=220)).startswith("Stability cannot be told")
