"""The memory ledger of a rank: what vLLM 0.33 finds at start-up, and the KV blocks it makes of the rest.

``available = ceil(total * utilization) - weights - activation peak - non-torch - CUDA graphs``, and the pool
has as many blocks as the fullest rank holds (vLLM ``v1/worker/gpu_worker.py`` ``determine_available_memory``,
``v1/core/kv_cache_utils.py``). Overheads are estimates with three constants, checked against logged servers.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from llmsim.deployment.layout import Stage, kv_bytes_per_token, stages, weights_bytes
from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec
from llmsim.model import dtype_bytes
from llmsim.units import GIB, format_bytes

if TYPE_CHECKING:
    from llmsim.deployment.specification import Deployment

V1_SINCE = (0, 8)
"""vLLM version in which the V1 engine became the default (release notes of 0.8.0)."""
GRAPHS_SINCE = (0, 21)
"""vLLM version since which the estimated CUDA-graph pool is subtracted
(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS)."""
CUDA_GRAPH_BYTES = 0.5 * GIB
"""Two public logs print 0.43 GiB (1.5B model, vLLM 0.29, T4) and 0.63 GiB (7B, vLLM 0.24, 32 GB card)."""


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Where the memory of the fullest rank goes, in bytes, and the KV pool that every rank has."""

    total_bytes: float
    requested_bytes: float
    """What the engine may use: total * gpu_memory_utilization."""
    weights_bytes: float
    activation_bytes: float
    """Transient peak of the start-up's profiling run."""
    non_torch_bytes: float
    """CUDA context, communication buffers and workspaces."""
    cuda_graph_bytes: float
    kv_pool_bytes: float
    block_bytes: float
    """One KV block over the layers of the rank."""
    block_size: int
    num_gpu_blocks: int
    """As vLLM counts: the null block, which holds no tokens, included."""
    kv_tokens: int
    """The log's "GPU KV cache size": num_gpu_blocks * block_size."""
    max_model_len: int
    max_concurrency: float
    """Requests of max_model_len tokens that the pool holds at once: the log's "maximum concurrency", not a
    limit."""
    notes: tuple[str, ...] = ()
    """Assumptions a reader should know."""

    def lines(self) -> list[str]:
        """The ledger as lines for people."""
        rows = (
            ("memory of the accelerator", self.total_bytes),
            ("requested by the engine", self.requested_bytes),
            ("- weights", self.weights_bytes),
            ("- activation peak", self.activation_bytes),
            ("- context and buffers", self.non_torch_bytes),
            ("- CUDA graphs", self.cuda_graph_bytes),
            ("= KV pool", self.kv_pool_bytes),
        )
        block = format_bytes(self.block_bytes)
        return [
            *(f"{label:<26}{format_bytes(value):>12}" for label, value in rows),
            f"{self.num_gpu_blocks:,} blocks of {self.block_size} tokens, {block} each",
            f"{self.kv_tokens:,} tokens, {self.max_concurrency:.2f} times {self.max_model_len:,}",
            *self.notes,
        ]

    def as_dict(self) -> dict[str, Any]:
        """The ledger as JSON values, by field name."""
        return {**asdict(self), "notes": list(self.notes)}


def batch_defaults(accelerator: AcceleratorSpec) -> tuple[int, int]:
    """vLLM 0.33's API-server defaults of (max_num_batched_tokens, max_num_seqs) on an accelerator.

    By device memory, with the A100 in the lower class (vLLM ``engine/arg_utils.py``, ``get_batch_defaults``).
    """
    memory_gib = accelerator.memory_bytes / GIB
    if memory_gib >= 160:
        return 16384, 1024
    if memory_gib >= 70 and "a100" not in accelerator.name.lower():
        return 8192, 1024
    return 2048, 256


def ledger(deployment: "Deployment") -> MemoryLedger:
    """The ledger of the rank with the fewest KV blocks; see ``Deployment.ledger``."""
    rank = min((_rank(deployment, stage) for stage in stages(deployment)), key=lambda each: each.num_gpu_blocks)
    override = deployment.num_gpu_blocks_override
    if override is not None:
        note = f"num_gpu_blocks_override = {override} replaces the computed pool; memory is not checked"
        pool = override * rank.block_bytes
        rank = replace(rank, num_gpu_blocks=override, kv_pool_bytes=pool, notes=(*rank.notes, note))
    elif rank.num_gpu_blocks < 2:
        raise ScenarioError(_does_not_fit(deployment, rank))
    length, notes = _max_model_len(deployment, rank)
    needed = -(-length // rank.block_size)
    return replace(
        rank,
        kv_tokens=rank.num_gpu_blocks * rank.block_size,
        max_model_len=length,
        max_concurrency=rank.num_gpu_blocks / needed,
        notes=(*rank.notes, *notes),
    )


def _rank(deployment: "Deployment", stage: Stage) -> MemoryLedger:
    """The ledger of one stage's ranks, before a length is resolved; its pool may be negative."""
    total = deployment.accelerator.memory_bytes
    requested = math.ceil(total * deployment.gpu_memory_utilization)
    weights = weights_bytes(deployment, stage)
    activation, non_torch, graphs = _overheads(deployment)
    pool = requested - weights - activation - non_torch - graphs
    block = stage.layers * deployment.block_size * kv_bytes_per_token(deployment)
    return MemoryLedger(
        total_bytes=total,
        requested_bytes=requested,
        weights_bytes=weights,
        activation_bytes=activation,
        non_torch_bytes=non_torch,
        cuda_graph_bytes=graphs,
        kv_pool_bytes=pool,
        block_bytes=block,
        block_size=deployment.block_size,
        num_gpu_blocks=max(0, int(pool // block)),
        kv_tokens=0,
        max_model_len=0,
        max_concurrency=0.0,
        notes=_notes(deployment),
    )


def _notes(deployment: "Deployment") -> tuple[str, ...]:
    windows = deployment.model.sliding_window_layers
    if 0 < windows < deployment.model.num_hidden_layers:
        return (f"the KV of {windows} sliding-window layers is counted at full length",)
    return ()


def _overheads(deployment: "Deployment") -> tuple[float, float, float]:
    """Bytes of a rank for (activation peak, non-torch, CUDA graphs).

    The peak is the larger of the forward pass and the sampler in the profiling run. Per vocabulary entry and
    sequence the V1 sampler holds 16 bytes (float32 logits, their sorted copy, int64 indices); the V0 engine's
    log of vLLM pull request 10511 (8B, 1.26 GiB at 256 sequences) gives 40. Non-torch memory is what vLLM
    0.15 logs leave besides: 0.7 GiB; V0 logs print 0.07 to 0.35 GiB.
    """
    if deployment.kv_overhead_bytes is not None:
        return 0.0, deployment.kv_overhead_bytes, 0.0
    version = tuple(int(part) for part in deployment.engine_version.split(".")[:2])
    logit_bytes, non_torch = (16, 0.7 * GIB) if version >= V1_SINCE else (40, 0.25 * GIB)
    tokens_default, sequences_default = batch_defaults(deployment.accelerator)
    tokens = deployment.max_num_batched_tokens or tokens_default
    if not deployment.enable_chunked_prefill:
        limit = deployment.max_model_len
        tokens = max(tokens, deployment.model.max_position_embeddings if limit == "auto" else limit)
    sequences = min(deployment.max_num_seqs or sequences_default, tokens)
    sampler = logit_bytes * sequences * deployment.model.vocab_size
    graphs = CUDA_GRAPH_BYTES if version >= GRAPHS_SINCE and not deployment.enforce_eager else 0.0
    return max(tokens * _forward_bytes_per_token(deployment), sampler), non_torch, graphs


def _forward_bytes_per_token(deployment: "Deployment") -> float:
    """Peak of live activations in the widest place of a layer, per token.

    Residual, normed input and output, with gate, up and their product: 2.99 GiB at 29,000 tokens of an 8B
    model, as logged in vLLM issue 10517. A fused MoE kernel holds a copy of all that for each expert a token
    visits.
    """
    model, size = deployment.model, dtype_bytes(deployment.activation_dtype)
    dense = 3 * model.intermediate_size / deployment.tensor_parallel_size
    if model.moe is None:
        return (3 * model.hidden_size + dense) * size
    part = model.moe.moe_intermediate_size / deployment.expert_tensor_parallel_size
    experts = model.moe.num_experts_per_tok * (max(2 * part, model.hidden_size) + part)
    return (3 * model.hidden_size + max(experts, dense if model.moe.dense_layers else 0.0)) * size


def _max_model_len(deployment: "Deployment", rank: MemoryLedger) -> tuple[int, tuple[str, ...]]:
    """The context length served, and a note where the pool lowers it.

    Raises:
        ScenarioError: if an explicit length exceeds the model's or the pool's.
    """
    model_limit = deployment.model.max_position_embeddings
    pool_limit = (rank.num_gpu_blocks - 1) * rank.block_size
    largest = min(model_limit, pool_limit)
    asked = deployment.max_model_len
    if asked == "auto":
        lowered = f"max_model_len lowered from the model's {model_limit} to the {largest} tokens the KV pool holds"
        return largest, (lowered,) if largest < model_limit else ()
    if asked > model_limit:
        raise ScenarioError(
            f"max_model_len = {asked} is longer than the {model_limit} tokens (max_position_embeddings) of "
            f"{deployment.model.name}; allowed: at most {largest}, or 'auto'"
        )
    if -(-asked // rank.block_size) > rank.num_gpu_blocks - 1 and not deployment.allow_long_max_model_len:
        raise ScenarioError(
            f"max_model_len = {asked} does not fit: the KV pool of {rank.num_gpu_blocks} blocks holds "
            f"{pool_limit} tokens beside the null block; allowed: at most {largest}, or 'auto'"
        )
    return asked, ()


def _does_not_fit(deployment: "Deployment", rank: MemoryLedger) -> str:
    overhead = format_bytes(rank.activation_bytes + rank.non_torch_bytes + rank.cuda_graph_bytes)
    least = 2 * rank.block_bytes
    return (
        f"{deployment.model.name} does not fit on {deployment.accelerator.name} with "
        f"tensor_parallel_size = {deployment.tensor_parallel_size}, "
        f"pipeline_parallel_size = {deployment.pipeline_parallel_size}: on each, "
        f"{format_bytes(rank.weights_bytes)} of weights, {overhead} of overhead and {format_bytes(least)} "
        f"for the least KV pool are {format_bytes(least - rank.kv_pool_bytes)} more than the "
        f"{format_bytes(rank.requested_bytes)} of gpu_memory_utilization; {_what_fits(deployment)}"
    )


def _what_fits(deployment: "Deployment") -> str:
    """The smallest larger engine that holds the model: more ranks in a node, then more nodes."""
    node = deployment.accelerator.accelerators_per_node
    sizes = [2**power for power in range(1, 11) if deployment.divides(2**power)]
    for size in sizes:
        if deployment.tensor_parallel_size < size <= node and _fits(deployment, size, 1):
            return f"tensor_parallel_size = {size} would fit"
    widest = max((size for size in sizes if size <= node), default=1)
    for depth in range(2, deployment.model.num_hidden_layers + 1):
        if _fits(deployment, widest, depth):
            return (
                f"tensor_parallel_size = {widest} with pipeline_parallel_size = {depth} would fit: "
                f"{widest * depth} accelerators"
            )
    return "no number of these accelerators would hold it: take a larger one, a smaller dtype or less overhead"


def _fits(deployment: "Deployment", tensor: int, pipeline: int) -> bool:
    wider = replace(deployment, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    return all(_rank(wider, stage).num_gpu_blocks >= 2 for stage in stages(wider))
