"""The list of operators of one iteration of a deployment: what a decoder-only transformer runs, layer by
layer.

``stage_operators`` says what a pipeline stage runs on its tokens, whatever their context;
``attention_operators`` says what one attention layer runs on keys and values. Efficiencies and launch times
are the accelerator's.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from llmsim.cost.collectives import all_gather, all_reduce, exchange, send
from llmsim.cost.operators import Collective, Operator
from llmsim.deployment import Deployment, Matrix, Stage, layout
from llmsim.deployment.overheads import vllm_version
from llmsim.model import dtype_bytes

MLA_LAUNCH_S = 70e-6
"""Fixed time of an MLA attention layer in vLLM and SGLang: 70 to 100 us beside its projections, from
per-operator times of H100 and H200 (aiconfigurator-core 0.12.0); one sequence on H200 takes a block of 110
us."""

EIGHT_BIT = ("fp8", "int8", "fp4")
"""Compute dtypes whose inputs are made from 16-bit activations on the way (fp4: half a byte more is counted)."""

SAMPLER_BYTES_PER_LOGIT = 10
"""Greedy sampling: 16-bit logits read, a float32 copy written and read by the argmax."""

SORTING_BYTES_PER_LOGIT = 300
"""Sampling by top-p or top-k where PyTorch sorts the vocabulary for it: keys and indices several times, then softmax,
sums and scatter. 6.2 ms for 512 rows of 131,072 logits, 2.3 ms for 128 (vllm-project/vllm, pull request 40376), which
is so much at 3 to 4 TB/s; a server of an 8B lost 15 % of its throughput to it (pull request 11394)."""
SORTING_BEFORE = (0, 16)
"""The release of vLLM whose own kernels choose among the likeliest tokens (pull request 33538)."""


LINEAR_CHUNK = 64
"""Tokens that kernels of linear attention compute as one piece (flash-linear-attention, ``chunk_gated_delta_rule``)."""


class StageOperators(NamedTuple):
    """What one pipeline stage runs."""

    on_tokens: list[Operator | Collective]
    """Their statistics are functions of the number of tokens."""
    on_sampled: list[Operator | Collective]
    """Their statistic is the number of sampled rows."""


class AttentionOperators(NamedTuple):
    """What one layer runs on keys and values, if the batch has a prefill, and if it has a decode."""

    prefill: list[Operator]
    decode: list[Operator]


def stage_operators(deployment: Deployment, stage: Stage) -> StageOperators:
    """What a stage runs beside attention proper: projections, MLPs, experts, norms, exchanges and the LM
    head."""
    kernels = _Kernels(deployment)
    on_tokens: list[Operator | Collective] = [
        kernels.product(each, stage.attention_layers) for each in layout.attention_matrices(deployment)
    ]
    if stage.linear_layers:
        on_tokens += [kernels.product(each, stage.linear_layers) for each in layout.linear_matrices(deployment)]
    if stage.dense_layers:
        on_tokens += [kernels.product(each, stage.dense_layers) for each in layout.dense_matrices(deployment)]
    if stage.moe_layers:
        on_tokens += [kernels.product(each, stage.moe_layers) for each in layout.shared_matrices(deployment)]
        on_tokens.append(kernels.experts(stage.moe_layers))
    on_tokens += kernels.elementwise(stage)
    on_tokens += kernels.exchanges(stage)
    return StageOperators(on_tokens, kernels.head() if stage.last else [])


def attention_operators(deployment: Deployment, stage: Stage) -> list[tuple[float, AttentionOperators]]:
    """What a layer of each kind runs on keys and values, or on its state, and how many of the kind there are."""
    kernels = _Kernels(deployment)
    full = kernels.latent_attention() if deployment.model.mla else kernels.attention(window=False)
    made = [(stage.full_layers, full)]
    if stage.window_layers:
        made.append((stage.window_layers, kernels.attention(window=True)))
    if stage.linear_layers:
        made.append((stage.linear_layers, kernels.linear_attention()))
    return [(layers, each) for layers, each in made if layers]


def operators(deployment: Deployment, stage: Stage) -> Iterator[Operator | Collective]:
    """All that a stage runs in an iteration."""
    on_tokens, on_sampled = stage_operators(deployment, stage)
    yield from on_tokens
    yield from on_sampled
    for layers, (prefill, decode) in attention_operators(deployment, stage):
        yield from (replace(each, count=layers) for each in (*prefill, *decode))


def experts_touched(deployment: Deployment, tokens: Any) -> Any:
    """Distinct experts of a rank that ``tokens`` tokens of each data-parallel rank visit, on average.

    (E/ep) * (1 - (1 - k/E)**T): each token chooses k of E experts evenly. All ranks are taken to have as many
    tokens.
    """
    moe = deployment.model.moe
    if moe is None:
        return tokens * 0.0
    missed = (1 - moe.num_experts_per_tok / moe.num_experts) ** (tokens * _expert_sources(deployment))
    return moe.num_experts / deployment.expert_parallel_size * (1 - missed)


def _expert_sources(deployment: Deployment) -> int:
    """Data-parallel ranks whose tokens visit the experts of a rank."""
    return deployment.data_parallel_size if deployment.enable_expert_parallel else 1


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Makes the operators of a deployment."""

    deployment: Deployment

    def product(self, matrix: Matrix, count: float, rows: str = "tokens") -> Operator:
        """A matrix product: 2*M*N*K FLOPs; weights, inputs and outputs once through memory."""
        dtype = self.deployment.compute_dtype(matrix.dtype)
        key = self._scales(dtype) or dtype
        accelerator, efficiency = self.deployment.accelerator, self.deployment.accelerator.efficiency
        input_bytes = 1 if dtype in EIGHT_BIT else self._activation_bytes
        return Operator(
            name=matrix.name,
            count=count,
            rows=rows,
            row_bytes=matrix.inputs * input_bytes + matrix.outputs * self._activation_bytes,
            work=rows,
            flop=2 * matrix.inputs * matrix.outputs,
            tile_flop=2 * matrix.outputs * efficiency.gemm_tile_depth.get(key, 0.0),
            fixed_bytes=matrix.weight_bytes,
            read=rows,
            flop_per_s=accelerator.peak_flop_per_s[dtype] * _of(efficiency.gemm_compute, key, dtype),
            bytes_per_s=accelerator.hbm_bandwidth_bytes_per_s * _of(efficiency.gemm_hbm, key, dtype),
            launch_s=_of(efficiency.gemm_launch_s, key, dtype),
            sustained=efficiency.gemm_sustained.get(key, 1.0),
            tile_rows=efficiency.gemm_tile_rows.get(key, 1),
        )

    def experts(self, count: int) -> Operator:
        """The routed experts: those touched are read, and each token visits ``num_experts_per_tok`` of them.

        Under expert parallelism the fullest rank decides; it has 1 + lambda*log2(ep) times the mean tokens.
        """
        deployment, moe = self.deployment, self.deployment.model.moe
        assert moe is not None
        matrices = layout.expert_matrices(deployment)
        stored = deployment.weight_dtype
        dtype = deployment.compute_dtype(stored)
        key = self._scales(dtype) or stored
        accelerator, efficiency = deployment.accelerator, deployment.accelerator.efficiency
        ranks = deployment.expert_parallel_size
        imbalance = 1 + efficiency.moe_imbalance_per_log2_ep * math.log2(ranks)
        visits = moe.num_experts_per_tok * _expert_sources(deployment) / ranks * imbalance
        values = sum(matrix.inputs + matrix.outputs for matrix in matrices)
        token_flop = sum(2 * matrix.inputs * matrix.outputs for matrix in matrices)
        tile_flop = sum(2 * matrix.outputs * efficiency.moe_tile_depth for matrix in matrices)
        return Operator(
            name="experts",
            count=count,
            rows="tokens",
            row_bytes=visits * values * self._activation_bytes,
            flop=visits * token_flop,
            tile_flop=visits * tile_flop,
            padding_flop=efficiency.moe_padding_tokens * (token_flop + tile_flop),
            read="experts",
            read_bytes=sum(matrix.weight_bytes for matrix in matrices),
            flop_per_s=accelerator.peak_flop_per_s[dtype] * _of(efficiency.moe_compute, key, dtype),
            bytes_per_s=accelerator.hbm_bandwidth_bytes_per_s * _of(efficiency.moe_hbm, key, dtype),
            launch_s=_of(efficiency.moe_launch_s, key, dtype),
        )

    def elementwise(self, stage: Stage) -> list[Operator]:
        """The norms of each layer, with the residual read and written; positions turned into queries and keys, which
        are normed first in some models, and the KV written (their launches count to attention); the activation of
        each dense MLP; and the inputs of 8-bit products, read in 16 bit and written in 8."""
        deployment, model, size = self.deployment, self.deployment.model, self._activation_bytes
        norms = model.norms_per_layer * stage.layers
        made = [self._elementwise("norm", norms, "tokens", 4 * model.hidden_size * size)]
        if model.mla is None:
            heads, kv = model.num_attention_heads // deployment.tensor_parallel_size, layout.kv_heads(deployment)
            passes = 2 if model.qk_norm else 1
            turned = (2 * passes * (heads + kv) + 2 * kv) * model.head_dim * size
            turned += (
                layout.kv_bytes_per_token(deployment) + 3 * model.attention_output_gate * heads * model.head_dim * size
            )
            made.append(replace(self._elementwise("rope", stage.attention_layers, "tokens", turned), launch_s=0.0))
        if deployment.compute_dtype(deployment.linear_dtype) in EIGHT_BIT:
            inputs = stage.attention_layers * sum(each.inputs for each in layout.attention_matrices(deployment))
            inputs += stage.linear_layers * sum(each.inputs for each in layout.linear_matrices(deployment))
            inputs += stage.dense_layers * sum(each.inputs for each in layout.dense_matrices(deployment))
            quantize = self._elementwise("quantize", 1, "tokens", (size + 1) * inputs)
            made.append(replace(quantize, launch_s=0.0))
        if stage.dense_layers:
            width = model.intermediate_size / self.deployment.tensor_parallel_size
            moved = (3 if model.gated_mlp else 2) * width * size
            made.append(self._elementwise("activation", stage.dense_layers, "tokens", moved))
        return made

    def exchanges(self, stage: Stage) -> list[Collective]:
        """All-reduces of the embedding, after attention and after the MLP, one of both where they are parallel; or, to
        experts that other data-parallel ranks share, dispatch (all-gather) and combination (reduce-scatter);
        activations to the next stage."""
        deployment = self.deployment
        row = deployment.model.hidden_size * self._activation_bytes
        ranks, sources = deployment.tensor_parallel_size, _expert_sources(deployment)
        dispatched = stage.moe_layers if sources > 1 else 0
        made = []
        if ranks > 1:
            count = (1 if deployment.model.parallel_attention else 2) * stage.layers - dispatched + stage.first
            made.append(all_reduce(deployment, "all_reduce", count, row, ranks))
        if dispatched:
            made += [
                exchange(deployment, name, dispatched, row * sources, deployment.expert_parallel_size)
                for name in ("dispatch", "combine")
            ]
        return made if stage.last else [*made, send(deployment, row)]

    def head(self) -> list[Operator | Collective]:
        """The LM head on the rows that sample, the gathering of its logits, and the sampler."""
        deployment, vocabulary = self.deployment, self.deployment.model.vocab_size
        made: list[Operator | Collective] = [self.product(layout.head_matrix(deployment), 1, "sampled")]
        if deployment.tensor_parallel_size > 1:
            row = vocabulary * self._activation_bytes
            ranks = deployment.tensor_parallel_size
            made.append(all_gather(deployment, "gather_logits", 1, "sampled", row, ranks))
        return [*made, self._elementwise("sampler", 1, "sampled", self._sampler_bytes * vocabulary)]

    def attention(self, window: bool) -> AttentionOperators:
        """Grouped-query attention: 4*H*d FLOPs a query-key pair, keys and values read once
        (FlashAttention)."""
        deployment, model = self.deployment, self.deployment.model
        accelerator, efficiency = deployment.accelerator, deployment.accelerator.efficiency
        width = model.num_attention_heads // deployment.tensor_parallel_size * model.head_dim
        kv_bytes = layout.kv_bytes_per_token(deployment)
        kv_heads = max(1, model.num_key_value_heads // deployment.tensor_parallel_size)
        common: dict[str, Any] = {
            "count": 1,
            "row_bytes": 2 * width * self._activation_bytes + kv_bytes,
            "flop": 4 * width,
            "read_bytes": kv_bytes,
            "flop_per_s": self._activation_flop_per_s * efficiency.prefill_attention_compute,
            "bytes_per_s": accelerator.hbm_bandwidth_bytes_per_s * efficiency.decode_attention_hbm,
        }
        small_kernels = 8 if model.qk_norm else 4
        prefill = Operator(
            name="prefill_attention",
            rows="prefill_tokens",
            work="prefill_window_pairs" if window else "prefill_pairs",
            read="prefill_window_tokens" if window else "prefill_context_tokens",
            launch_s=efficiency.prefill_attention_launch_s + small_kernels * efficiency.elementwise_launch_s,
            **common,
        )
        context = "decode_window_tokens" if window else "decode_context_tokens"
        decode = Operator(
            name="decode_attention",
            rows="decode_sequences",
            work=context,
            read=context,
            launch_s=efficiency.decode_attention_launch_s,
            at_once=efficiency.decode_attention_blocks / kv_heads,
            **common,
        )
        return AttentionOperators([prefill], [decode])

    def latent_attention(self) -> AttentionOperators:
        """Multi-head latent attention: prefill expands the latent vectors of the whole context to keys and
        values; decode works on the latent vectors themselves, in queries and outputs absorbed by the same
        matrix (DeepSeek-V2, section 2.1.2)."""
        deployment, mla = self.deployment, self.deployment.model.mla
        assert mla is not None
        heads = deployment.model.num_attention_heads // deployment.tensor_parallel_size
        query, value = mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.v_head_dim
        latent = mla.kv_lora_rank + mla.qk_rope_head_dim
        accelerator, efficiency = deployment.accelerator, deployment.accelerator.efficiency
        common: dict[str, Any] = {
            "count": 1,
            "flop_per_s": self._activation_flop_per_s * efficiency.prefill_attention_compute,
            "bytes_per_s": accelerator.hbm_bandwidth_bytes_per_s * efficiency.decode_attention_hbm,
            "launch_s": MLA_LAUNCH_S,
        }
        prefill = Operator(
            name="prefill_attention",
            rows="prefill_tokens",
            row_bytes=heads * (query + value) * self._activation_bytes,
            work="prefill_pairs",
            flop=2 * heads * (query + value),
            read="prefill_context_tokens",
            read_bytes=heads * (query + value) * self._activation_bytes,
            **common,
        )
        decode = Operator(
            name="decode_attention",
            rows="decode_sequences",
            row_bytes=2 * heads * latent * self._activation_bytes,
            work="decode_context_tokens",
            flop=2 * heads * (latent + mla.kv_lora_rank),
            read="decode_context_tokens",
            read_bytes=layout.kv_bytes_per_token(deployment),
            **common,
        )
        expand, absorb = self._latent_products()
        return AttentionOperators([expand, prefill], [absorb, decode])

    def linear_attention(self) -> AttentionOperators:
        """A recurrence on a matrix S a head: read by the key, updated, read by the query, 2*d_k*d_v FLOPs each; S is
        read and written once a sequence (gated DeltaNet, arXiv 2412.06464, sections 3.1 and 3.3).

        Prefill takes ``LINEAR_CHUNK`` tokens at a time: products within the chunk are its price. Convolution and gated
        norm read and write what they mix. Its kernels are taken to reach what those of attention do: no measurement of
        them went into the efficiencies.
        """
        deployment, spec = self.deployment, self.deployment.model.linear_attention
        assert spec is not None
        accelerator, efficiency = deployment.accelerator, deployment.accelerator.efficiency
        ranks = deployment.tensor_parallel_size
        moved = ((4 if spec.conv_kernel_dim else 1) * spec.mixed_width + 4 * spec.value_width) / ranks
        common: dict[str, Any] = {
            "count": 1,
            "row_bytes": moved * self._activation_bytes,
            "flop": 6 * spec.value_width * spec.key_head_dim / ranks,
            "read_bytes": 2 * layout.state_bytes(deployment),
            "flop_per_s": self._activation_flop_per_s * efficiency.prefill_attention_compute,
            "bytes_per_s": accelerator.hbm_bandwidth_bytes_per_s * efficiency.decode_attention_hbm,
        }
        within = 2 * LINEAR_CHUNK * (spec.value_width + spec.num_value_heads * spec.key_head_dim) / ranks
        prefill = Operator(
            name="prefill_linear",
            rows="prefill_tokens",
            work="prefill_tokens",
            read="prefill_sequences",
            tile_flop=within,
            launch_s=efficiency.prefill_attention_launch_s + 4 * efficiency.elementwise_launch_s,
            **common,
        )
        decode = Operator(
            name="decode_linear",
            rows="decode_sequences",
            work="decode_sequences",
            read="decode_sequences",
            launch_s=efficiency.decode_attention_launch_s,
            **common,
        )
        return AttentionOperators([prefill], [decode])

    def _latent_products(self) -> tuple[Operator, Operator]:
        """MLA's expansion of latent vectors in prefill, and what decode absorbs of it: work of attention, as it goes
        with the context, so that a batch's own tokens neither fill tiles nor lower the clock."""
        matrix = layout.latent_matrix(self.deployment)
        assert matrix is not None
        product = replace(self.product(matrix, 1, "decode_sequences"), sustained=1.0, tile_rows=1)
        expand = replace(
            product,
            rows="prefill_tokens",
            row_bytes=0.0,
            work="prefill_context_tokens",
            read="prefill_context_tokens",
            read_bytes=(matrix.inputs + matrix.outputs) * self._activation_bytes,
        )
        return expand, product

    def _scales(self, dtype: str) -> str | None:
        """The efficiency key of fp8 products with a scale a block, which other kernels compute; None
        otherwise."""
        return "fp8_block" if dtype == "fp8" and self.deployment.model.fp8_block_scales else None

    @property
    def _sampler_bytes(self) -> float:
        """Read and written a logit to choose a token."""
        sorts = self.deployment.sampling == "top_p" and vllm_version(self.deployment) < SORTING_BEFORE
        return SORTING_BYTES_PER_LOGIT if sorts else SAMPLER_BYTES_PER_LOGIT

    @property
    def _activation_flop_per_s(self) -> float:
        dtype = self.deployment.compute_dtype(self.deployment.activation_dtype)
        return self.deployment.accelerator.peak_flop_per_s[dtype]

    @property
    def _activation_bytes(self) -> float:
        return dtype_bytes(self.deployment.activation_dtype)

    def _elementwise(self, name: str, count: float, rows: str, row_bytes: float) -> Operator:
        accelerator, efficiency = self.deployment.accelerator, self.deployment.accelerator.efficiency
        return Operator(
            name=name,
            count=count,
            rows=rows,
            row_bytes=row_bytes,
            flop_per_s=self._activation_flop_per_s,
            bytes_per_s=accelerator.hbm_bandwidth_bytes_per_s * efficiency.elementwise_hbm,
            launch_s=efficiency.elementwise_launch_s,
        )


def _of(table: dict[str, float], *keys: str) -> float:
    """The entry of the first key there is; every accelerator has bfloat16."""
    return next(table[key] for key in (*keys, "bfloat16") if key in table)
