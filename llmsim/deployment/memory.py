"""The memory ledger of a rank: what an engine finds at start-up, and the KV blocks it makes of the rest.

vLLM: ``available = ceil(total * utilization) - weights - activation peak - non-torch - CUDA graphs``, and the pool has
as many blocks as the fullest rank holds (vLLM ``v1/worker/gpu_worker.py`` ``determine_available_memory``,
``v1/core/kv_cache_utils.py``). SGLang and TensorRT-LLM take another share: ``_requested_bytes``.
"""

import math
from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from llmsim.deployment.groups import KvGroups, kv_groups
from llmsim.deployment.layout import Stage, kv_bytes_per_token, stages, state_bytes, weights_bytes
from llmsim.deployment.overheads import Overheads, batch_defaults, overheads, static_fraction
from llmsim.errors import ScenarioError
from llmsim.units import format_bytes

if TYPE_CHECKING:
    from llmsim.deployment.specification import Deployment


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
    state_bytes: float
    """Linear attention's state of max_num_seqs sequences; 0 for models without."""
    kv_pool_bytes: float
    block_bytes: float
    """One KV block over the layers of a group: all of the rank's, unless only some of them have a sliding window."""
    block_size: int
    num_gpu_blocks: int
    """As vLLM counts: of all groups, and the null block, which holds no tokens, included."""
    kv_tokens: int
    """The log's "GPU KV cache size": num_gpu_blocks * block_size, or, where only some layers have a window,
    max_concurrency * max_model_len."""
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
            *([("- linear attention state", self.state_bytes)] if self.state_bytes else []),
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


def ledger(deployment: "Deployment") -> MemoryLedger:
    """The ledger of the rank with the fewest KV blocks; see ``Deployment.ledger``."""
    rank = fullest_rank(deployment)
    if rank.num_gpu_blocks < 2:
        raise ScenarioError(_does_not_fit(deployment, rank))
    length, notes = _max_model_len(deployment, rank)
    held = concurrency(deployment, rank, length)
    tokens = rank.num_gpu_blocks * rank.block_size
    if deployment.model.mixes_windows:
        tokens = int(held * length)
    return replace(
        rank,
        kv_tokens=tokens,
        max_model_len=length,
        max_concurrency=held,
        notes=(*rank.notes, *notes),
    )


def fullest_rank(deployment: "Deployment") -> MemoryLedger:
    """The ledger of the rank with the fewest KV blocks, whether or not it has any, before a length is resolved."""
    rank = rank_ledger(deployment, _fullest_stage(deployment))
    override = deployment.num_gpu_blocks_override
    if override is None:
        return rank
    note = f"num_gpu_blocks_override = {override} replaces the computed pool; memory is not checked"
    pool = override * rank.block_bytes
    return replace(rank, num_gpu_blocks=override, kv_pool_bytes=pool, notes=(*rank.notes, note))


def rank_ledger(deployment: "Deployment", stage: Stage) -> MemoryLedger:
    """The ledger of one stage's ranks, before a length is resolved; its pool may be negative."""
    weights, rest = weights_bytes(deployment, stage), overheads(deployment)
    requested = _requested_bytes(deployment, weights, rest)
    sequences = deployment.max_num_seqs or batch_defaults(deployment.accelerator)[1]
    state = stage.linear_layers * state_bytes(deployment) * sequences
    pool = requested - weights - rest.activation_bytes - rest.non_torch_bytes - rest.cuda_graph_bytes - state
    block = kv_groups(deployment, stage).layers * deployment.block_size * kv_bytes_per_token(deployment)
    return MemoryLedger(
        total_bytes=deployment.accelerator.memory_bytes,
        requested_bytes=requested,
        weights_bytes=weights,
        activation_bytes=rest.activation_bytes,
        non_torch_bytes=rest.non_torch_bytes,
        cuda_graph_bytes=rest.cuda_graph_bytes,
        state_bytes=state,
        kv_pool_bytes=pool,
        block_bytes=block,
        block_size=deployment.block_size,
        num_gpu_blocks=max(0, int(pool // block)),
        kv_tokens=0,
        max_model_len=0,
        max_concurrency=0.0,
        notes=_notes(deployment),
    )


def _requested_bytes(deployment: "Deployment", weights: float, rest: Overheads) -> float:
    """What the engine takes of the memory: a share of all of it (vLLM), of what is free at start-up (SGLang,
    ``model_runner.py`` ``profile_max_num_token``), or of what is free beside weights and activations (TensorRT-LLM,
    ``KvCacheConfig.free_gpu_memory_fraction``)."""
    total = deployment.accelerator.memory_bytes
    if deployment.engine == "vllm":
        return math.ceil(total * deployment.gpu_memory_utilization)
    if deployment.engine == "sglang":
        fraction = deployment.mem_fraction_static or static_fraction(deployment)
        return (total - rest.non_torch_bytes) * fraction + rest.non_torch_bytes
    used = weights + rest.activation_bytes + rest.non_torch_bytes + rest.cuda_graph_bytes
    return used + (total - used) * deployment.free_gpu_memory_fraction


def concurrency(deployment: "Deployment", rank: MemoryLedger, tokens: int) -> float:
    """Requests of ``tokens`` tokens that the pool of ``rank``, the fullest, holds at once, windowed layers keeping only
    what they may still attend to."""
    return rank.num_gpu_blocks / fullest_groups(deployment).blocks_per_request(deployment, tokens)


def fullest_groups(deployment: "Deployment") -> KvGroups:
    """The groups of layers of the rank with the fewest KV blocks."""
    return kv_groups(deployment, _fullest_stage(deployment))


def _fullest_stage(deployment: "Deployment") -> Stage:
    def positions(stage: Stage) -> float:
        return rank_ledger(deployment, stage).num_gpu_blocks / kv_groups(deployment, stage).width

    return min(stages(deployment), key=positions)


def _notes(deployment: "Deployment") -> tuple[str, ...]:
    if deployment.model.linear_layers:
        return (
            "the state of linear attention is set aside for max_num_seqs sequences; vLLM takes it as they come",
            "prefix caching is taken to find a state of linear attention at each KV block",
        )
    return ()


def _max_model_len(deployment: "Deployment", rank: MemoryLedger) -> tuple[int, tuple[str, ...]]:
    """The context length served, and a note where the pool lowers it.

    Raises:
        ScenarioError: if an explicit length exceeds the model's or the pool's.
    """
    model_limit = deployment.model.max_position_embeddings
    pool_limit = _longest_request(deployment, rank)
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
    if asked > pool_limit and not deployment.allow_long_max_model_len:
        raise ScenarioError(
            f"max_model_len = {asked} does not fit: the KV pool of {rank.num_gpu_blocks} blocks holds "
            f"{pool_limit} tokens beside the null block; allowed: at most {largest}, or 'auto'"
        )
    return asked, ()


def _longest_request(deployment: "Deployment", rank: MemoryLedger) -> int:
    """Tokens of the longest request that the pool holds beside the null block: whole blocks."""
    groups, size, blocks = fullest_groups(deployment), rank.block_size, float(rank.num_gpu_blocks - 1)
    longest = -(-deployment.model.max_position_embeddings // size) * size
    lengths = range(size, longest + size, size)
    return size * bisect_right(lengths, blocks, key=lambda tokens: groups.blocks_per_request(deployment, tokens))


def _does_not_fit(deployment: "Deployment", rank: MemoryLedger) -> str:
    from llmsim.deployment.remedies import remedies  # it asks for the ledgers of other deployments

    rest = rank.activation_bytes + rank.non_torch_bytes + rank.cuda_graph_bytes + rank.state_bytes
    overhead = format_bytes(rest)
    least = 2 * rank.block_bytes
    return (
        f"{deployment.model.name} does not fit on {deployment.accelerator.name} with "
        f"tensor_parallel_size = {deployment.tensor_parallel_size}, "
        f"pipeline_parallel_size = {deployment.pipeline_parallel_size}: on each, "
        f"{format_bytes(rank.weights_bytes)} of weights, {overhead} of overhead and {format_bytes(least)} "
        f"for the least KV pool are {format_bytes(least - rank.kv_pool_bytes)} more than the "
        f"{format_bytes(rank.requested_bytes)} that the engine may use; {'; '.join(remedies(deployment))}"
    )
