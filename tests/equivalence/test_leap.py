"""Leaping over decisions that cannot change gives the very results of making them one by one."""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from llmsim.engine import replica
from llmsim.engine.leap import Leap
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from tests.equivalence.compare import differences
from tests.equivalence.drawn import draw_scenario, impatient

BLOCKS, BLOCK = 8, 251
IMPATIENT = 250


def stepped(scenario: Scenario) -> Scenario:
    """The scenario without leaps."""
    return replace(scenario, run=replace(scenario.run, leap=False))


class Watched(Leap):
    """A leap that tells what ends it."""

    __slots__ = ("planned",)
    ends: ClassVar[Counter[str]] = Counter()

    def __init__(self, state: Any, plan: Any, iterations: int, cell: Any) -> None:
        super().__init__(state, plan, iterations, cell)
        clock, window = state.clock, state.window
        self.planned = iterations
        last = plan.iteration + iterations
        if last == clock.next_leaving():
            self.ends["finish"] += 1
        elif window is not None and last + 1 == clock.next_crossing():
            self.ends["window"] += 1
        elif clock.blocks_over(iterations + 1) > state.kv.free:
            self.ends["kv"] += 1
        else:
            self.ends["cell of costs"] += 1

    def end_after(self, iterations: int) -> None:
        """Something happens meanwhile."""
        if hasattr(self, "planned"):
            self.ends["arrival"] += 1
        super().end_after(iterations)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_leap_and_step_agree_to_the_last_bit(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaps end for every reason there is, together more than a hundred times each."""
    monkeypatch.setattr(replica, "Leap", Watched)
    monkeypatch.setattr(Watched, "ends", ends := Counter())
    iterations = leaped = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        scenario = draw_scenario(seed)
        with_leaps, one_by_one = simulate(scenario), simulate(stepped(scenario))
        assert differences(with_leaps, one_by_one) == [], f"scenario of seed {seed}"
        assert one_by_one.facts.leaped_iterations == 0
        iterations += len(with_leaps.record.iterations["end_s"])
        leaped += with_leaps.facts.leaped_iterations
    assert leaped >= 0.6 * iterations, "the drawn scenarios no longer show what a leap does"
    for reason in ("finish", "kv", "window", "arrival", "cell of costs"):
        assert ends[reason] >= 100 / BLOCKS, f"{reason}: {ends}"


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
