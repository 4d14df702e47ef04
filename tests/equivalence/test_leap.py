"""Leaping over decisions that cannot change gives the very results of making them one by one."""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from llmsim.cost import LinearCost, Step
from llmsim.engine import replica
from llmsim.engine.leap import Leap
from llmsim.simulation import simulate
from llmsim.workload import RequestTable
from tests.equivalence.compare import differences, share_leaped, stepped
from tests.equivalence.drawn import draw_scenario, impatient
from tests.factories import a_scenario

BLOCKS, BLOCK = 8, 251
IMPATIENT = 250
PATIENT = 100


class Watched(Leap):
    """A leap that tells what ends it."""

    __slots__ = ("planned",)
    ends: ClassVar[Counter[str]] = Counter()

    def __init__(self, state: Any, plan: Any, iterations: int, cell: Any) -> None:
        super().__init__(state, plan, iterations, cell)
        clock, window = plan.clock, state.window
        self.planned = iterations
        last = plan.iteration + iterations
        if self.iterations < iterations:
            self.ends["timer"] += 1
        elif last == clock.next_leaving():
            self.ends["finish"] += 1
        elif window is not None and last + 1 == clock.next_crossing():
            self.ends["window"] += 1
        elif clock.iterations_within(state.kv.free, iterations + 1) == iterations:
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
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    assert share_leaped((seed, draw_scenario(seed)) for seed in seeds) >= 0.6, (
        "the drawn scenarios no longer show what a leap does"
    )
    for reason in ("finish", "kv", "window", "arrival", "timer", "cell of costs"):
        assert ends[reason] >= 100 / BLOCKS, f"{reason}: {ends}"


class Patient:
    """A scheduler that admits nobody to running requests until the head of the queue has waited for 45 ms."""

    def __init__(self, limits: Any) -> None:
        self.limits = limits

    def __getattr__(self, name: str) -> Any:
        return getattr(self.limits, name)

    def resolve(self, *deployment: Any) -> "Patient":
        """The same with defaults filled in."""
        return Patient(self.limits.resolve(*deployment))

    def start(self, state: Any) -> "PatientPolicy":
        """What schedules one engine."""
        return PatientPolicy(self.limits, state)


class PatientPolicy:
    """Its limits for running requests are those of another one that it asks."""

    def __init__(self, limits: Any, state: Any) -> None:
        self.state = state
        self.open = limits.start(state)
        self.closed = replace(limits, max_num_seqs=1).start(state)

    def schedule(self, now_ns: int) -> Any:
        """Beside a running request a limit of one lets nobody in."""
        waiting, running = self.state.waiting, self.state.running
        until_ns = waiting.head().queued_ns + 45_000_000 if waiting and running else -1
        plan = (self.closed if now_ns <= until_ns else self.open).schedule(now_ns)
        if plan is not None and now_ns <= until_ns:
            plan.until_ns = until_ns
        return plan


def test_leap_and_step_agree_when_a_scheduler_of_ones_own_waits_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With iterations in flight the plan that comes after the time is not the first that ends after it."""
    monkeypatch.setattr(replica, "Leap", Watched)
    monkeypatch.setattr(Watched, "ends", ends := Counter())
    for seed in range(PATIENT):
        drawn = draw_scenario(seed, async_scheduling=True)
        engines = [replace(pool.engine, scheduler=Patient(pool.engine.scheduler)) for pool in drawn.pools]
        pools = [replace(pool, engine=engine) for pool, engine in zip(drawn.pools, engines, strict=True)]
        scenario = replace(drawn, pools=pools)
        assert differences(simulate(scenario), simulate(stepped(scenario))) == [], f"scenario of seed {seed}"
    assert ends["timer"] >= 100


class LatePrompts(LinearCost):
    """A made-up cost: the tokens of an iteration with prompts are out later than the next iteration can start."""

    def step(self, batch: Any) -> Step:
        """Twice as late."""
        taken_s = super().step(batch).occupancy_s
        return Step(taken_s, 2 * taken_s if batch.prefill_sequences else taken_s)


def test_leap_and_step_agree_when_the_tokens_of_prompts_are_out_late() -> None:
    cost = LatePrompts(base_s=0.0037, per_token_s=1.3e-5, per_context_token_s=1e-7)
    for seed in range(40):
        scenario = draw_scenario(seed, cost=cost)
        assert differences(simulate(scenario), simulate(stepped(scenario))) == [], f"scenario of seed {seed}"


@pytest.mark.parametrize(("asynchronous", "stages", "others"), [(True, 1, 45), (False, 1, 45), (False, 2, 150)])
def test_leap_and_step_agree_when_a_waiting_prompt_names_what_is_being_generated(
    asynchronous: bool, stages: int, others: int
) -> None:
    """Without chunks it is admitted when enough of it has been generated for the rest to fit into the budget.

    Prompts of 150 others are more than fit into one iteration, so that both micro batches decode.
    """
    prompts: list[list[tuple[int, int, int]]] = [[(row, 0, 5)] for row in range(others)]
    prompts = [[(others, 0, 20)], *prompts, [(others, 0, 20), (-1, 0, 300), (others + 1, 0, 78)]]
    table = RequestTable.build(
        arrival_ns=[0] * (others + 1) + [40_000_000],
        prompt_tokens=[sum(tokens for _, _, tokens in pieces) for pieces in prompts],
        output_tokens=[310] * (others + 1) + [2],
        segments=(
            np.cumsum([0, *(len(pieces) for pieces in prompts)]),
            *np.array([piece for pieces in prompts for piece in pieces]).T,
        ),
    )
    limits = {"max_num_batched_tokens": 400, "max_model_len": 400, "num_gpu_blocks_override": 5000, "block_size": 4}
    pool = {"async_scheduling": asynchronous, "pipeline_parallel_size": stages}
    scenario = a_scenario(table, enable_chunked_prefill=False, **pool, **limits)
    with_leaps = simulate(scenario)
    assert differences(with_leaps, simulate(stepped(scenario))) == []
    assert with_leaps.record.requests["cached_tokens"][-1] > 20


def test_leap_and_step_agree_when_what_a_waiting_prompt_would_find_is_reused() -> None:
    """Without chunks a prompt that lacks blocks at first is too long for what is left of the budget in the end."""
    prompts: list[list[tuple[int, int, int]]] = [[(50, 0, 100)], *([(row, 0, 4)] for row in range(45))]
    prompts.append([(50, 0, 100), (51, 0, 290)])
    table = RequestTable.build(
        arrival_ns=[0] * 46 + [800_000_000],
        prompt_tokens=[sum(tokens for _, _, tokens in pieces) for pieces in prompts],
        output_tokens=[1] + [310] * 45 + [2],
        segments=(
            np.cumsum([0, *(len(pieces) for pieces in prompts)]),
            *np.array([piece for pieces in prompts for piece in pieces]).T,
        ),
    )
    limits = {"max_num_batched_tokens": 400, "max_model_len": 400, "num_gpu_blocks_override": 768, "block_size": 4}
    scenario = a_scenario(table, enable_chunked_prefill=False, async_scheduling=False, **limits)
    with_leaps = simulate(scenario)
    assert differences(with_leaps, simulate(stepped(scenario))) == []
    assert {"kv", "budget"} <= set(with_leaps.record.iterations["stopped_by"])


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
