"""What memory a rank needs beside weights and KV, by the rules of each engine.

Estimates with a few constants, checked against logged servers; ``memory`` puts them in the ledger.
"""

from typing import TYPE_CHECKING, NamedTuple

from llmsim.hardware import AcceleratorSpec
from llmsim.model import dtype_bytes
from llmsim.units import GIB, MIB

if TYPE_CHECKING:
    from llmsim.deployment.specification import Deployment

V1_SINCE = (0, 8)
"""vLLM version in which the V1 engine became the default (release notes of 0.8.0)."""
GROUPS_SINCE = (0, 10)
"""vLLM version since which windowed layers have KV blocks of their own (of July 2025; the rule of
``kv_cache_utils.py`` is of June)."""
GRAPHS_SINCE = (0, 21)
"""vLLM version since which the estimated CUDA-graph pool is subtracted
(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS)."""
CUDA_GRAPH_BYTES = 0.5 * GIB
"""Two public logs print 0.43 GiB (1.5B model, vLLM 0.29, T4) and 0.63 GiB (7B, vLLM 0.24, 32 GB card)."""
NON_TORCH_BYTES = 0.7 * GIB
"""CUDA context and communication buffers: what vLLM 0.15 logs leave beside weights, activations and KV."""
V0_NON_TORCH_BYTES = 0.25 * GIB
"""V0 logs print 0.07 to 0.35 GiB."""
LOGIT_BYTES, V0_LOGIT_BYTES = 16, 40
"""Per vocabulary entry and sequence the V1 sampler holds float32 logits, their sorted copy, and int64 indices; the V0
engine's log of vLLM pull request 10511 (8B, 1.26 GiB at 256 sequences) gives 40."""


class Overheads(NamedTuple):
    """Bytes of a rank beside weights and KV, and what the activation peak is made of."""

    activation_bytes: float
    non_torch_bytes: float
    cuda_graph_bytes: float
    tokens: int = 0
    """In one iteration at most."""
    token_bytes: float = 0.0
    """Live activations of a token in the widest place of a layer."""
    logits: int = 0
    """Sequences times vocabulary entries."""
    logit_bytes: float = 0.0


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


def vllm_version(deployment: "Deployment") -> tuple[int, ...]:
    """Major and minor version of vLLM."""
    return tuple(int(part) for part in deployment.engine_version.split(".")[:2])


def overheads(deployment: "Deployment") -> Overheads:
    """What a rank needs beside weights and KV."""
    if deployment.kv_overhead_bytes is not None:
        return Overheads(0.0, deployment.kv_overhead_bytes, 0.0)
    return _vllm(deployment) if deployment.engine == "vllm" else _others(deployment)


def static_fraction(deployment: "Deployment") -> float:
    """SGLang's default of mem_fraction_static: the share of memory for weights and KV.

    Reserved are 512 MiB, 1.5 MiB a token of a prefill chunk (at least 2,048), 2 MiB a sequence of the largest
    captured CUDA graph, 1 GiB for each 8 ranks; at least 10 GiB above 60 GB (SGLang 0.5, ``server_args.py``).
    """
    memory = deployment.accelerator.memory_bytes
    chunk, captured = _sglang_defaults(memory)
    chunk = deployment.max_num_batched_tokens or chunk
    ranks = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
    graphs = 0 if deployment.enforce_eager else 2 * captured
    reserved = (512 + 1.5 * max(chunk, 2048) + graphs + ranks / 8 * 1024) * MIB
    if memory > 60 * GIB:
        reserved = max(reserved, 10 * GIB)
    return max(0.0, 1 - reserved / memory)


def _sglang_defaults(memory_bytes: float) -> tuple[int, int]:
    """(chunked_prefill_size, largest captured batch) by memory (SGLang 0.5, ``server_args.py``)."""
    for limit, chunk, captured in ((20, 2048, 8), (35, 4096, 24), (60, 4096, 32), (160, 8192, 256)):
        if memory_bytes < limit * GIB:
            return chunk, captured
    return 16384, 512


def _vllm(deployment: "Deployment") -> Overheads:
    """The larger of forward pass and sampler in the profiling run, and the rest."""
    version = vllm_version(deployment)
    v1 = version >= V1_SINCE
    logit_bytes, non_torch = (LOGIT_BYTES, NON_TORCH_BYTES) if v1 else (V0_LOGIT_BYTES, V0_NON_TORCH_BYTES)
    tokens_default, sequences_default = batch_defaults(deployment.accelerator)
    tokens = deployment.max_num_batched_tokens or tokens_default
    if not deployment.enable_chunked_prefill:
        limit = deployment.max_model_len
        tokens = max(tokens, deployment.model.max_position_embeddings if limit == "auto" else limit)
    logits = min(deployment.max_num_seqs or sequences_default, tokens) * deployment.model.vocab_size
    graphs = CUDA_GRAPH_BYTES if version >= GRAPHS_SINCE and not deployment.enforce_eager else 0.0
    token_bytes = _forward_bytes_per_token(deployment)
    peak = max(tokens * token_bytes, logit_bytes * logits)
    return Overheads(peak, non_torch, graphs, tokens, token_bytes, logits, logit_bytes)


def _others(deployment: "Deployment") -> Overheads:
    """SGLang keeps activations and graphs in the memory outside its static fraction; TensorRT-LLM takes its fraction of
    what is free after them (``llm_args.KvCacheConfig``), with iterations of 8,192 tokens by default."""
    if deployment.engine == "sglang":
        return Overheads(0.0, NON_TORCH_BYTES, 0.0)
    tokens, token_bytes = deployment.max_num_batched_tokens or 8192, _forward_bytes_per_token(deployment)
    graphs = 0.0 if deployment.enforce_eager else CUDA_GRAPH_BYTES
    return Overheads(tokens * token_bytes, NON_TORCH_BYTES, graphs, tokens, token_bytes)


def _forward_bytes_per_token(deployment: "Deployment") -> float:
    """Peak of live activations in the widest place of a layer, per token.

    Residual, normed input and output, with gate, up and their product: 2.99 GiB at 29,000 tokens of an 8B
    model, as logged in vllm#10517. A fused MoE kernel holds a copy of all that for each expert a token
    visits.
    """
    model, size = deployment.model, dtype_bytes(deployment.activation_dtype)
    dense = 3 * model.intermediate_size / deployment.tensor_parallel_size
    if model.moe is None:
        return (3 * model.hidden_size + dense) * size
    part = model.moe.moe_intermediate_size / deployment.expert_tensor_parallel_size
    experts = model.moe.num_experts_per_tok * (max(2 * part, model.hidden_size) + part)
    return (3 * model.hidden_size + max(experts, dense if model.moe.dense_layers else 0.0)) * size
