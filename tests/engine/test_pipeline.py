"""Pipeline stages of constant time against the closed-form bubble, and the laws with stages."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from llmsim.cost import Account, AnalyticCost, Batch, CostModel, Step
from llmsim.deployment import Deployment
from llmsim.engine.kv import BlockGroups, BlockPool
from llmsim.engine.queues import ArrivalQueue
from llmsim.engine.settings import EngineSpec
from llmsim.engine.state import EngineState
from llmsim.engine.static import StaticScheduler
from llmsim.engine.vllm_v0 import VllmV0Scheduler
from llmsim.results.results import Results
from llmsim.simulation import simulate
from tests.equivalence.drawn import draw_scenario
from tests.factories import a_pool, a_scenario, a_sequence, a_table

STAGE_S = 0.01


@dataclass(frozen=True, slots=True)
class ConstantStages:
    """Every stage takes the same time whatever the batch."""

    stages: int
    request_s: float = 0.0

    def start(self, deployment: Deployment) -> CostModel:
        """The same on any deployment."""
        return self

    def step(self, batch: Batch) -> Step:
        """The next batch may start when the first stage is free."""
        return Step(STAGE_S, STAGE_S * self.stages)

    def account(self, batches: Batch) -> Account:
        """All of it overhead."""
        zero = np.zeros(len(batches.sampled))
        return Account(zero, zero, zero, zero, zero, zero, zero + STAGE_S)


class TokenStages(ConstantStages):
    """Every stage takes 10 ms a token."""

    def step(self, batch: Batch) -> Step:
        """Prompts alone are asked about."""
        return Step(STAGE_S * batch.prefill_tokens, STAGE_S * batch.prefill_tokens * self.stages)


def run(stages: int, groups: int, outputs: int) -> Results:
    """``groups`` requests that arrive at once, one prompt to a micro batch; most of it is leaped over."""
    pool = a_pool(
        pipeline_parallel_size=stages,
        cost=ConstantStages(stages),
        max_num_batched_tokens=100,
        max_num_seqs=64,
        async_scheduling=False,
        enable_prefix_caching=False,
    )
    table = a_table(arrival_s=[0.0] * groups, prompt_tokens=100, output_tokens=outputs)
    results = simulate(a_scenario(table, pools=[pool]))
    assert results.facts.leaped_iterations > 0.9 * groups * outputs
    return results


@pytest.mark.parametrize("stages", [2, 4])
def test_one_micro_batch_leaves_the_other_stages_idle(stages: int) -> None:
    """Each token passes all stages before the next can start: the bubble is (p - 1) / p."""
    assert run(stages, 1, 50).record.requests["finish_s"] == pytest.approx([50 * stages * STAGE_S])


@pytest.mark.parametrize("stages", [2, 4])
def test_as_many_micro_batches_as_stages_leave_only_the_ramp(stages: int) -> None:
    """p micro batches of n tokens take n * p + p - 1 stage times: a bubble of (p - 1) / (n * p + p - 1)."""
    finish_s = run(stages, stages, 50).record.requests["finish_s"]
    assert finish_s.max() == pytest.approx((50 * stages + stages - 1) * STAGE_S)


def test_a_stage_more_than_micro_batches_is_lost() -> None:
    """Two micro batches on four stages: half of the time nobody computes."""
    assert run(4, 2, 50).record.requests["finish_s"].max() == pytest.approx((50 * 4 + 1) * STAGE_S)


def test_a_static_batch_is_one_micro_batch() -> None:
    """Nobody joins it, so that the other stage idles while one computes: n tokens pass two stages n times."""
    engine = EngineSpec(scheduler=StaticScheduler(max_num_seqs=8))
    pool = a_pool(engine=engine, pipeline_parallel_size=2, cost=ConstantStages(2))
    results = simulate(a_scenario(a_table(arrival_s=[0.0] * 3, output_tokens=[20, 10, 5]), pools=[pool]))
    assert results.record.requests["finish_s"] == pytest.approx([0.4, 0.2, 0.1])
    assert len(results.record.iterations["end_s"]) == 20


def test_a_short_batch_does_not_overtake_a_long_one() -> None:
    """Three prompts, each a batch of its own, on three stages: a batch enters a stage when it has left the stage before
    and the batch before it has left this one."""
    times = [29, 5, 28]
    left = [0, 0, 0]
    expected = []
    for time in times:
        left[0] += time
        for stage in (1, 2):
            left[stage] = max(left[stage - 1], left[stage]) + time
        expected.append(left[2])
    pool = a_pool(
        pipeline_parallel_size=3,
        cost=TokenStages(3),
        max_model_len=30,
        max_num_batched_tokens=30,
        max_num_seqs=8,
        enable_chunked_prefill=False,
    )
    table = a_table(arrival_s=[0.0] * 3, prompt_tokens=times, output_tokens=1)
    ends_s = simulate(a_scenario(table, pools=[pool])).record.requests["finish_s"]
    assert ends_s == pytest.approx([STAGE_S * end for end in expected])


def test_stalls_of_each_micro_batch_are_gaps_of_its_own() -> None:
    """While prompts of one micro batch are computed its decodes wait, and the other goes on."""
    rng = np.random.default_rng(1)
    engine = EngineSpec(scheduler=VllmV0Scheduler(max_num_seqs=12, max_num_batched_tokens=400))
    pool = a_pool(engine=engine, pipeline_parallel_size=2, num_gpu_blocks_override=190, max_model_len=400)
    for _ in range(5):
        table = a_table(
            arrival_s=np.sort(rng.choice([0.0, 0.2, 0.3], 12)).tolist(),
            prompt_tokens=rng.integers(60, 190, 12).tolist(),
            output_tokens=rng.integers(3, 30, 12).tolist(),
        )
        record = simulate(a_scenario(table, pools=[pool])).record
        gaps_s, requests = record.totals.itl_values_s * record.totals.itl_counts, record.requests
        assert gaps_s.sum() == pytest.approx((requests["finish_s"] - requests["first_token_s"]).sum())


def test_requests_that_are_held_back_keep_their_order() -> None:
    groups = BlockGroups(16)
    state = EngineState(BlockPool(10, groups), ArrivalQueue(), groups, batches_in_flight=3, lanes=3)
    plan = state.plan()
    waiting = [a_sequence(row) for row in range(4)]
    plan.late, plan.sampled = (waiting[1],), (waiting[0],)
    state.flights.append(plan)
    for sequence in waiting:
        state.waiting.add(sequence)
    held_back = state.hold_back()
    assert state.waiting.listed() == waiting[2:]
    for sequence in held_back:
        state.waiting.put_back(sequence)
    assert state.waiting.listed() == waiting


@pytest.mark.parametrize("seed", range(60))
def test_the_laws_hold_with_stages(seed: int) -> None:
    """With more than two stages others are planned between a preemption and the token that was in flight then."""
    given = {"cost": AnalyticCost()} if seed % 2 else {}
    run = {"horizon_s": None, "warm_up_s": 0.0}
    scenario = draw_scenario(seed, pipeline_parallel_size=2 + seed % 3, async_scheduling=False, **run, **given)
    results = simulate(scenario)
    columns, iterations = results.record.requests, results.record.iterations
    outcomes = set(columns["outcome"])
    assert outcomes <= {"finished", "rejected", "aborted"}
    done = columns["outcome"] == "finished"
    times = [
        columns[name][done] for name in ("arrival_s", "queued_s", "first_scheduled_s", "first_token_s", "finish_s")
    ]
    assert all(np.all(earlier <= later) for earlier, later in pairwise(times))
    for replica in np.unique(iterations["replica"]):
        assert np.all(np.diff(iterations["end_s"][iterations["replica"] == replica]) >= 0)
    if len(gaps_s := results.record.totals.itl_values_s):
        assert np.nanmax(columns["max_itl_s"]) == pytest.approx(gaps_s.max(), abs=2e-9)
    assert iterations["sampled"].sum() == columns["output_tokens"].sum()
    assert int(iterations["preempted"].sum()) == int(columns["preemptions"].sum())
