"""Leaping over decisions that cannot change gives the very results of making them one by one."""

from dataclasses import replace

import pytest

from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from tests.equivalence.compare import differences
from tests.equivalence.drawn import draw_scenario, impatient

BLOCKS, BLOCK = 8, 251
IMPATIENT = 250


def stepped(scenario: Scenario) -> Scenario:
    """The scenario without leaps."""
    return replace(scenario, run=replace(scenario.run, leap=False))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_leap_and_step_agree_to_the_last_bit(block: int) -> None:
    iterations = leaped = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        scenario = draw_scenario(seed)
        with_leaps, one_by_one = simulate(scenario), simulate(stepped(scenario))
        assert differences(with_leaps, one_by_one) == [], f"scenario of seed {seed}"
        assert one_by_one.facts.leaped_iterations == 0
        iterations += len(with_leaps.record.iterations["end_s"])
        leaped += with_leaps.facts.leaped_iterations
    assert leaped >= 0.6 * iterations, "the drawn scenarios no longer show what a leap does"


def test_leap_and_step_agree_when_clients_give_up_and_come_back() -> None:
    given_up = again = in_time = 0
    for seed in range(IMPATIENT):
        scenario = impatient(draw_scenario(seed), seed)
        with_leaps = simulate(scenario)
        assert differences(with_leaps, simulate(stepped(scenario))) == [], f"scenario of seed {seed}"
        requests = with_leaps.record.requests
        given_up += int((requests["reason"] == "timeout").sum())
        again += int((requests["attempts"] > 1).sum())
        in_time += int((requests["outcome"] == "finished").sum())
    assert min(given_up, again, in_time) > IMPATIENT
