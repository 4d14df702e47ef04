"""Batch sizes a user leaves out, against vLLM 0.33's table of API-server defaults by device memory."""

import pytest

from llmsim.engine.vllm import VllmScheduler
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator


def resolved(
    scheduler: VllmScheduler, accelerator: str = "h100-sxm", max_model_len: int = 131_072
) -> tuple[int | None, int | None]:
    """(max_num_batched_tokens, max_num_seqs) after vLLM's rule."""
    found = scheduler.resolve(load_accelerator(accelerator), max_model_len)
    return found.max_num_batched_tokens, found.max_num_seqs


@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [
        ("b200-sxm", (16384, 1024)),
        ("h100-sxm", (8192, 1024)),
        ("h200-sxm", (8192, 1024)),
        ("a100-sxm-80gb", (2048, 256)),
        ("l40s", (2048, 256)),
        ("rtx-4090", (2048, 256)),
    ],
)
def test_defaults_follow_the_memory_with_the_a100_below_its_class(accelerator: str, expected: tuple[int, int]) -> None:
    assert resolved(VllmScheduler(), accelerator) == expected


def test_what_the_user_gives_stays() -> None:
    assert resolved(VllmScheduler(max_num_seqs=7, max_num_batched_tokens=300)) == (300, 7)


def test_no_more_sequences_than_tokens_of_a_step_by_default() -> None:
    assert resolved(VllmScheduler(max_num_batched_tokens=300)) == (300, 300)


def test_no_more_tokens_by_default_than_all_sequences_can_have() -> None:
    assert resolved(VllmScheduler(max_num_seqs=4), max_model_len=100) == (400, 4)


def test_without_chunked_prefill_a_step_takes_the_longest_prompt() -> None:
    assert resolved(VllmScheduler(enable_chunked_prefill=False), max_model_len=50_000) == (50_000, 1024)
    with pytest.raises(ScenarioError, match="max_num_batched_tokens = 4096 must be at least max_model_len = 8192"):
        resolved(VllmScheduler(enable_chunked_prefill=False, max_num_batched_tokens=4096), max_model_len=8192)


def test_fewer_tokens_of_a_step_than_sequences_are_refused() -> None:
    with pytest.raises(ScenarioError, match="max_num_batched_tokens = 8 must be at least max_num_seqs = 9"):
        resolved(VllmScheduler(max_num_seqs=9, max_num_batched_tokens=8))
