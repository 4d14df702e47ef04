"""What a user sets of an engine, by vLLM's argument names: the scheduler, its limits, and its KV memory."""

from dataclasses import replace
from typing import Literal

from pydantic import Field, PositiveInt

from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec
from llmsim.specification import specification
from llmsim.units import GIB


@specification
class VllmScheduler:
    """vLLM's V1 scheduler (version 0.33): continuous batching, chunked prefill, preemption by recomputation.

    A batch size that is None takes vLLM's API-server default for the accelerator's memory.
    """

    kind: Literal["vllm"] = "vllm"
    max_num_seqs: PositiveInt | None = None
    """Most requests running at once."""
    max_num_batched_tokens: PositiveInt | None = None
    """Most tokens in one iteration."""
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = Field(default=0, ge=0)
    """Most prompt tokens of one request in one iteration; 0: no such limit."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: float = Field(default=0.0, ge=0, lt=1)
    """Share of KV blocks that must stay free when a request is admitted beside running ones."""
    scheduler_reserve_full_isl: bool = True
    """Admit a request only when its whole prompt fits in the free blocks, not just its first chunk."""
    async_scheduling: bool = True
    """Schedule an iteration while the one before it runs."""

    def resolve(self, accelerator: AcceleratorSpec, max_model_len: int) -> "VllmScheduler":
        """This scheduler with both batch sizes filled in, as vLLM 0.33 does when its API server starts.

        Source: vLLM 0.33, the defaults of ``EngineArgs`` and the checks of ``SchedulerConfig``.

        Raises:
            ScenarioError: for batch sizes that vLLM refuses.
        """
        default_tokens, default_seqs = _default_batch(accelerator)
        max_num_seqs = self.max_num_seqs or default_seqs
        max_num_batched_tokens = self.max_num_batched_tokens
        if max_num_batched_tokens is None:
            smallest = 0 if self.enable_chunked_prefill else max_model_len
            max_num_batched_tokens = min(max(default_tokens, smallest), max_num_seqs * max_model_len)
        if self.max_num_seqs is None:
            max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        if max_num_batched_tokens < max_num_seqs:
            raise ScenarioError(
                f"max_num_batched_tokens = {max_num_batched_tokens} must be at least max_num_seqs = {max_num_seqs}"
            )
        if not self.enable_chunked_prefill and max_num_batched_tokens < max_model_len:
            raise ScenarioError(
                f"max_num_batched_tokens = {max_num_batched_tokens} must be at least "
                f"max_model_len = {max_model_len} when enable_chunked_prefill is false"
            )
        return replace(self, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)


def _default_batch(accelerator: AcceleratorSpec) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) of vLLM's API server, by the accelerator's memory.

    Source: vLLM 0.33, ``EngineArgs.get_batch_defaults``, which excepts the A100 and the GB10 by name.
    """
    name = accelerator.name.lower()
    if accelerator.memory_bytes >= 160 * GIB:
        return 16384, 1024
    if accelerator.memory_bytes >= 70 * GIB and "a100" not in name and "gb10" not in name:
        return 8192, 1024
    return 2048, 256


SchedulerSpec = VllmScheduler


@specification
class EngineSpec:
    """One engine: its scheduler and its KV memory."""

    scheduler: SchedulerSpec = VllmScheduler()
    enable_prefix_caching: bool = True
    block_size: PositiveInt = 16
    """Tokens in a KV block."""
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
    """Share of the accelerator's memory the engine may use."""
