"""Rules of vLLM's V1 scheduler that no recorded case shows."""

from typing import Any

import pytest

from llmsim.engine.decisions import Decisions
from llmsim.engine.plan import Plan
from llmsim.engine.vllm import VllmPolicy
from llmsim.scenario import Scenario
from llmsim.simulation import simulate
from tests.equivalence.drawn import draw_scenario
from tests.factories import a_scenario, a_table

RUNS = 30


def decisions(scenario: Scenario) -> list[dict[str, Any]]:
    """The logs of all replicas, one after the other."""
    logs: list[Decisions] = []
    simulate(scenario, decisions=logs)
    return [step for log in logs for step in log.steps]


@pytest.mark.parametrize("stages", [1, 3])
def test_running_requests_get_their_tokens_as_if_asked_one_by_one(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which cached blocks are evicted included: those that were free before the first victim's."""

    def one_by_one(policy: VllmPolicy, plan: Plan, budget: int, threshold: int = 0) -> int:
        return policy._walk(plan, budget, threshold)

    preempted = chunks = 0
    for seed in range(RUNS):
        given = {"long_prefill_token_threshold": (0, 5)[seed % 2], "max_num_batched_tokens": (8192, 16)[seed // 2 % 2]}
        given |= {"block_size": 4, "max_num_seqs": 12, "enable_chunked_prefill": True, "max_model_len": "auto"}
        blocks = 12 + seed % 30
        scenario = draw_scenario(seed, num_gpu_blocks_override=blocks, pipeline_parallel_size=stages, **given)
        together = decisions(scenario)
        with monkeypatch.context() as patch:
            patch.setattr(VllmPolicy, "_schedule_decodes", one_by_one)
            patch.setattr(VllmPolicy, "_schedule_running", one_by_one)
            assert together == decisions(scenario), f"scenario of seed {seed}"
        preempted += sum(len(step["preempted"]) for step in together)
        chunks += sum(tokens > 1 for step in together for _, tokens in step["sched"])
    assert min(preempted, chunks) > RUNS


@pytest.mark.parametrize(("output_tokens", "wasted"), [(5, 1), (9, 1), (10, 0)])
def test_a_stop_wastes_a_token_unless_the_length_ends_it_too(output_tokens: int, wasted: int) -> None:
    """Planned an iteration ahead, a stop is seen late; at max_model_len no more is planned whatever was sampled."""
    table = a_table(prompt_tokens=90, output_tokens=output_tokens)
    record = simulate(a_scenario(table, max_model_len=100, async_scheduling=True)).record
    assert record.requests["reason"].tolist() == ["stop"]
    iterations = record.iterations
    assert iterations["decode_tokens"].sum() == output_tokens - 1 + wasted
    assert iterations["sampled"].sum() == output_tokens
