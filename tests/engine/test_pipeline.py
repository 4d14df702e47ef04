"""Pipeline stages of constant time against the closed-form bubble, and the laws with stages."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from llmsim.cost import Account, Batch, CostModel, Step
from llmsim.deployment import Deployment
from llmsim.simulation import simulate
from tests.equivalence.drawn import draw_scenario
from tests.factories import a_pool, a_scenario, a_table

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

    def decode(self, sequences: int, context_tokens: np.ndarray, window_tokens: np.ndarray) -> np.ndarray:
        """The time of the first stage."""
        return np.full(len(context_tokens), STAGE_S)

    def account(self, batches: Batch) -> Account:
        """All of it overhead."""
        zero = np.zeros(len(batches.sampled))
        return Account(zero, zero, zero, zero, zero, zero, zero + STAGE_S)


def run(stages: int, groups: int, outputs: int) -> np.ndarray:
    """Finish times of ``groups`` requests that arrive at once, one prompt to a micro batch."""
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
    return results.record.requests["finish_s"]


@pytest.mark.parametrize("stages", [2, 4])
def test_one_micro_batch_leaves_the_other_stages_idle(stages: int) -> None:
    """Each token passes all stages before the next can start: the bubble is (p - 1) / p."""
    assert run(stages, 1, 50) == pytest.approx([50 * stages * STAGE_S])


@pytest.mark.parametrize("stages", [2, 4])
def test_as_many_micro_batches_as_stages_leave_only_the_ramp(stages: int) -> None:
    """p micro batches of n tokens take n * p + p - 1 stage times: a bubble of (p - 1) / (n * p + p - 1)."""
    assert run(stages, stages, 50).max() == pytest.approx((50 * stages + stages - 1) * STAGE_S)


def test_a_stage_more_than_micro_batches_is_lost() -> None:
    """Two micro batches on four stages: half of the time nobody computes."""
    assert run(4, 2, 50).max() == pytest.approx((50 * 4 + 1) * STAGE_S)


@pytest.mark.parametrize("seed", range(60))
def test_the_laws_hold_with_stages(seed: int) -> None:
    scenario = draw_scenario(seed, pipeline_parallel_size=2, async_scheduling=False, horizon_s=None, warm_up_s=0.0)
    results = simulate(scenario)
    columns, iterations = results.record.requests, results.record.iterations
    outcomes = set(columns["outcome"])
    assert outcomes <= {"finished", "rejected", "aborted"}
    done = columns["outcome"] == "finished"
    times = [
        columns[name][done] for name in ("arrival_s", "queued_s", "first_scheduled_s", "first_token_s", "finish_s")
    ]
    assert all(np.all(earlier <= later) for earlier, later in pairwise(times))
    assert iterations["sampled"].sum() == columns["output_tokens"].sum()
    assert int(iterations["preempted"].sum()) == int(columns["preemptions"].sum())
