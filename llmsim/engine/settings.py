"""What a user sets of an engine: the scheduler, its limits, and how KV memory is divided. vLLM's argument names."""

from typing import Literal

from pydantic import Field, PositiveInt

from llmsim.specification import specification


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
    long_prefill_token_threshold: int = Field(0, ge=0)
    """Most prompt tokens of one request in one iteration; 0: no such limit."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: float = Field(0.0, ge=0, lt=1)
    """Share of KV blocks that must stay free when a request is admitted beside running ones."""
    scheduler_reserve_full_isl: bool = True
    """Admit a request only when its whole prompt fits in the free blocks, not just its first chunk."""
    async_scheduling: bool = True
    """Schedule an iteration while the one before it runs."""


SchedulerSpec = VllmScheduler


@specification
class EngineSpec:
    """One engine: its scheduler and its KV memory."""

    scheduler: SchedulerSpec = VllmScheduler()
    enable_prefix_caching: bool = True
    block_size: PositiveInt = 16
    """Tokens in a KV block."""
    gpu_memory_utilization: float = Field(0.92, gt=0, le=1)
    """Share of the accelerator's memory the engine may use."""
