"""Leaps with pipeline stages: of the only micro batch there is, and of several in turn."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from llmsim.cost import Account, AnalyticCost, Step
from llmsim.engine import lanes
from llmsim.engine.lanes import TurnLeap
from llmsim.engine.settings import EngineSpec
from llmsim.engine.static import StaticScheduler
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from tests.equivalence.compare import differences, share_leaped, stepped
from tests.equivalence.drawn import draw_scenario, impatient
from tests.equivalence.test_leap import Patient, Watched
from tests.factories import a_linear_cost, a_model, a_pool, a_scenario, a_table, a_windowed_model, changed

BLOCKS, BLOCK = 4, 60
STALE = 628
"""A seed with a plan in flight when the other one's requests have given up and others have joined the queue since."""


class WatchedTurns(TurnLeap):
    """A leap in turns that tells what ends it."""

    __slots__ = ("planned",)
    ends: ClassVar[Counter[str]] = Counter()

    def __init__(self, state: Any, turns: Any, iterations: int, free_ticks: int) -> None:
        super().__init__(state, turns, iterations, free_ticks)
        self.planned = iterations
        most, first = min((len(turns) * turn.iterations + number, turn) for number, turn in enumerate(turns))
        clock, last = first.plan.clock, first.plan.iteration + first.iterations
        if self.iterations < iterations:
            self.ends["timer"] += 1
        elif iterations < most:
            self.ends["longest" if iterations == lanes.LONGEST else "kv"] += 1
        elif last == clock.next_leaving():
            self.ends["finish"] += 1
        else:
            self.ends["window" if last + 1 == clock.next_crossing() else "cell of costs"] += 1

    def end_after(self, iterations: int) -> None:
        """Something happens meanwhile."""
        if hasattr(self, "planned"):
            self.ends["arrival"] += 1
        super().end_after(iterations)


def draw(seed: int) -> Scenario:
    """Anything an engine can meet, or (odd seeds) a crowd that fills all stages."""
    scenario = crowd(seed) if seed % 2 else draw_scenario(seed, pipeline_parallel_size=2 + seed % 3)
    return impatient(scenario, seed) if seed % 3 == 1 else scenario


def crowd(seed: int) -> Scenario:
    """Prompts that each fill an iteration, one for each stage and more, and others that come while they decode.

    Slots, KV blocks and the budget are scarce or ample, so that those wait at the head of the queue or behind it.
    """
    rng = np.random.default_rng(seed)
    stages = int(rng.integers(2, 5))
    crowd, others = stages + int(rng.integers(0, 3)), int(rng.integers(0, 7))
    prompts = np.concatenate([np.full(crowd, 32), rng.integers(1, 80, others)])
    outputs = 2 + rng.geometric(1 / 60, len(prompts))
    scarce = int(((prompts + outputs)[:crowd] // 4).sum() * 0.7)
    table = a_table(
        arrival_s=[0.0] * crowd + np.sort(np.round(rng.random(others), int(rng.choice([0, 2, 9])))).tolist(),
        prompt_tokens=prompts.tolist(),
        output_tokens=outputs.tolist(),
        priority=rng.integers(0, 2, len(prompts)).tolist(),
    )
    pool = a_pool(
        model=a_windowed_model(16, 48) if rng.random() < 0.3 else a_model(),
        pipeline_parallel_size=stages,
        block_size=4,
        num_gpu_blocks_override=max(int(rng.choice([scarce, 2000])), int((prompts + outputs).max()) // 4 + 2),
        max_num_seqs=int(rng.choice([crowd - 1, crowd, 32])),
        max_num_batched_tokens=32,
        long_prefill_token_threshold=int(rng.choice([0, 8])),
        policy=str(rng.choice(["fcfs", "priority"])),
        cost=(AnalyticCost(), a_linear_cost(per_token_s=0.0), a_linear_cost(per_context_token_s=1e-7))[rng.integers(3)],
        enable_prefix_caching=bool(rng.random() < 0.5),
    )
    return a_scenario(table, seed=seed, pools=[pool], horizon_s=1.0 if rng.random() < 0.2 else None)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_leap_and_step_agree_to_the_last_bit(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaps of one micro batch and of several end for every reason there is, each of them often."""
    monkeypatch.setattr(lanes, "Leap", Watched)
    monkeypatch.setattr(lanes, "TurnLeap", WatchedTurns)
    monkeypatch.setattr(lanes, "LONGEST", 40)
    monkeypatch.setattr(Watched, "ends", alone := Counter())
    monkeypatch.setattr(WatchedTurns, "ends", turns := Counter())
    seeds = (*range(block * BLOCK, (block + 1) * BLOCK), STALE)
    assert share_leaped((seed, draw(seed)) for seed in seeds) >= 0.7, (
        "the drawn scenarios no longer show what a leap does"
    )
    for reason in ("finish", "arrival", "cell of costs"):
        assert min(alone[reason], turns[reason]) >= 100 / BLOCKS, f"{reason}: {alone}, {turns}"
    for reason in ("kv", "window"):
        assert alone[reason] + turns[reason] >= 60 / BLOCKS, f"{reason}: {alone}, {turns}"
    assert turns["longest"] >= 100 / BLOCKS


@pytest.mark.parametrize("level", ["requests", "summary"])
def test_less_is_recorded_of_leaps_but_nothing_else(level: Any) -> None:
    """Work, time and KV of a leap of one micro batch are summed up as if they grew evenly, its gaps in bins."""
    summed_up = {"flop", "hbm_bytes", "link_bytes", "bound_s", "kv_usage_mean", "itl_values_s"}
    told = {"bound", "kv_usage", "mfu", "mbu", "itl_s"}
    for seed in range(1, 30, 2):
        scenario = draw(seed)
        scenario = changed(scenario, run=replace(scenario.run, record=level))
        with_leaps, one_by_one = simulate(scenario), simulate(stepped(scenario))
        found = differences(with_leaps, one_by_one)
        assert {name.split(".")[1] for name in found} <= summed_up | told, f"scenario of seed {seed}: {found}"
        sums, others = with_leaps.record.totals, one_by_one.record.totals
        for name in ("flop", "hbm_bytes", "link_bytes", "bound_s"):
            assert getattr(sums, name) == pytest.approx(getattr(others, name), rel=1e-4, abs=1e-4), f"{seed}: {name}"


@pytest.mark.parametrize("level", ["full", "requests", "summary"])
@pytest.mark.parametrize("cost", [AnalyticCost(), a_linear_cost(per_context_token_s=1e-7)])
def test_leaps_in_turns_are_told_as_iterations_are(level: Any, cost: Any) -> None:
    """While there are as many micro batches as stages nothing is summed up at any record level."""
    table = a_table(arrival_s=[0.0] * 3, prompt_tokens=[32, 30, 29], output_tokens=[200, 200, 200])
    scenario = a_scenario(table, pipeline_parallel_size=3, max_num_batched_tokens=32, cost=cost, record=level)
    with_leaps = simulate(scenario)
    assert differences(with_leaps, simulate(stepped(scenario))) == []
    assert with_leaps.facts.leaped_iterations > 500


def test_leap_and_step_agree_when_a_scheduler_waits_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "TurnLeap", WatchedTurns)
    monkeypatch.setattr(WatchedTurns, "ends", ends := Counter())
    for seed in range(1, 61, 2):
        drawn = draw(seed)
        engines = [replace(pool.engine, scheduler=Patient(pool.engine.scheduler)) for pool in drawn.pools]
        pools = [replace(pool, engine=engine) for pool, engine in zip(drawn.pools, engines, strict=True)]
        scenario = replace(drawn, pools=pools)
        assert differences(simulate(scenario), simulate(stepped(scenario))) == [], f"scenario of seed {seed}"
    assert ends["timer"] >= 10


def test_leap_and_step_agree_on_padded_batches_with_windows() -> None:
    """The next iteration of these is not like the last."""
    engine = EngineSpec(scheduler=StaticScheduler(max_num_seqs=3))
    table = a_table(arrival_s=[0.0] * 5, prompt_tokens=[10, 90, 40, 20, 30], output_tokens=[70, 60, 50, 40, 30])
    pool = a_pool(engine=engine, pipeline_parallel_size=2, model=a_windowed_model(16, 48), cost=AnalyticCost())
    scenario = a_scenario(table, pools=[pool])
    assert differences(simulate(scenario), simulate(stepped(scenario))) == []


@dataclass(frozen=True)
class Skewed:
    """A made-up cost: the tokens are out long after the next iteration can start, or even before."""

    ratio: float
    request_s = 0.0

    def start(self, deployment: Any) -> Any:
        """The same on any deployment."""
        return self

    def step(self, batch: Any) -> Step:
        """Iterations take longer with every token they attend to."""
        taken_s = 0.0037 + 1.3e-5 * batch.prefill_tokens + 1e-7 * batch.decode_context_tokens
        return Step(taken_s, taken_s * self.ratio)

    def account(self, batches: Any) -> Account:
        """All of it overhead."""
        zero = np.zeros(len(batches.sampled))
        return Account(*(zero,) * 6, zero + 0.0037)


@pytest.mark.parametrize("ratio", [0.6, 1.0, 2.3])
def test_leap_and_step_agree_whatever_is_late(ratio: float) -> None:
    for seed in range(1, 21, 2):
        drawn = draw(seed)
        scenario = changed(drawn, pools=[replace(pool, cost=Skewed(ratio)) for pool in drawn.pools])
        assert differences(simulate(scenario), simulate(stepped(scenario))) == [], f"scenario of seed {seed}"
