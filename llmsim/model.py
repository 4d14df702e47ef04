"""A model as numbers: architecture to parameters, FLOPs and KV bytes a token.

Stands on the catalogue; the deployment lays it on accelerators, the cost model counts its work. What the keys
of a Hugging Face config.json mean is in ``llmsim.model_config``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from llmsim import catalog
from llmsim.faults import build
from llmsim.model_config import model_facts, read
from llmsim.specification import specification

Dtype = Literal["float32", "bfloat16", "float16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
"""How weights, activations or KV are stored."""

_BITS: dict[str, float] = {
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": 4 + (16 + 4) / 128,
    "mxfp4": 4 + 8 / 32,
    "nvfp4": 4 + 8 / 16,
}


def dtype_bytes(dtype: str) -> float:
    """Bytes of one stored number, with its share of the scales.

    int4: a 16-bit scale and a 4-bit zero for each group of 128 (AutoAWQ's and AutoGPTQ's defaults); mxfp4: an
    8-bit scale for 32 (OCP Microscaling Formats v1.0, table 1); nvfp4: an 8-bit scale for 16 (NVIDIA TensorRT
    documentation, NVFP4). The scales of fp8 and int8, one for a row or for a block of 128 x 128, are under
    0.1 % and left out.
    """
    return _BITS[dtype] / 8


@specification
class MoeSpec:
    """The experts of a mixture-of-experts model."""

    num_experts: PositiveInt
    num_experts_per_tok: PositiveInt
    moe_intermediate_size: PositiveInt
    shared_intermediate_size: int = Field(0, ge=0)
    """Total width of the experts every token visits; 0: none."""
    dense_layers: int = Field(0, ge=0)
    """Layers that have a dense MLP of ``intermediate_size`` instead of experts."""


@specification
class MlaSpec:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): one compressed KV vector a token and layer."""

    q_lora_rank: int = Field(0, ge=0)
    """0: queries are not compressed."""
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: PositiveInt
    v_head_dim: PositiveInt


@specification
class LinearAttentionSpec:
    """Layers that keep a matrix a head instead of keys and values: gated DeltaNet (arXiv 2412.06464) or lightning
    attention (arXiv 2501.08313).

    Each projects a token to queries, keys, values and an output gate as wide as the values.
    """

    layers: PositiveInt
    """How many layers of the model are of this kind."""
    num_key_heads: PositiveInt
    """Of queries too."""
    num_value_heads: PositiveInt
    key_head_dim: PositiveInt
    value_head_dim: PositiveInt
    gates_per_head: int = Field(0, ge=0)
    """Numbers that a token gives each value head beside them: 2 in gated DeltaNet (decay and strength)."""
    conv_kernel_dim: int = Field(0, ge=0)
    """Tokens of the convolution over queries, keys and values; 0: none. Its weights, under 0.01 % of a model, are
    left out of parameter counts."""
    state_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """In which the matrix is kept; None: as activations are."""

    @property
    def value_width(self) -> int:
        """Values of a token, over all heads."""
        return self.num_value_heads * self.value_head_dim

    @property
    def mixed_width(self) -> int:
        """Queries, keys and values of a token, over all heads."""
        return 2 * self.num_key_heads * self.key_head_dim + self.value_width

    @property
    def input_width(self) -> int:
        """All that a token is projected to."""
        return self.mixed_width + self.value_width + self.gates_per_head * self.num_value_heads

    def state_bytes(self, dtype: str) -> float:
        """What a sequence keeps in a layer whatever its length, with activations of ``dtype``: a matrix a value head,
        and the last inputs of the convolution."""
        inputs = max(self.conv_kernel_dim - 1, 0) * self.mixed_width * dtype_bytes(dtype)
        return self.value_width * self.key_head_dim * dtype_bytes(self.state_dtype or dtype) + inputs


@specification
class ModelSpec:
    """A decoder-only transformer. Field names are those of Hugging Face's config.json.

    Parameter counts leave out quantization scales, multi-token-prediction layers and a vision part; and biases
    other than those of query, key and value, under 0.2 % of a model of 100 million parameters and less of
    larger ones.
    """

    name: str
    architecture: str = "LlamaForCausalLM"
    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    intermediate_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    tie_word_embeddings: bool = False
    gated_mlp: bool = True
    """Gate, up and down projections (SwiGLU); False: up and down only."""
    attention_bias: bool = False
    """Biases on the query, key and value projections."""
    attention_output_gate: bool = False
    """Queries come with a gate as wide on what attention gives out (Qwen3-Next)."""
    qk_norm: bool = False
    norms_per_layer: PositiveInt = 2
    """Norms of the hidden size in a layer; 4 in Gemma, which also norms what attention and MLP give out, 1
    where attention and MLP share one."""
    parallel_attention: bool = False
    """Attention and MLP work side by side on one input (GPT-J, Falcon), so that tensor parallel ranks add up
    both at once: one all-reduce a layer, not two."""
    learned_positions: int = Field(0, ge=0)
    """Rows of the table of position embeddings (OPT); 0: positions are rotary or linear biases."""
    sliding_window: PositiveInt | None = None
    """Tokens a windowed layer attends to; None: every layer attends to all. Chunked attention (Llama 4) is
    taken as a window of the chunk's size: the same up to that length, up to twice its mean beyond."""
    sliding_window_layers: int = Field(0, ge=0)
    """How many of the layers have the window."""
    moe: MoeSpec | None = None
    mla: MlaSpec | None = None
    linear_attention: LinearAttentionSpec | None = None
    """Layers without keys and values; None: all have them."""
    dtype: Dtype = "bfloat16"
    """In which the weights are published, when not quantized."""
    quantization: Dtype | None = None
    """In which the linear layers' weights are published, where it differs from ``dtype``."""
    quantized_layers: Literal["linear", "experts"] = "linear"
    """Which weights ``quantization`` is of: all linear layers, or the routed experts only (gpt-oss)."""
    fp8_block_scales: bool = False
    """fp8 weights have a scale for each block (DeepSeek-V3, section 3.3.2), not one for a tensor or row."""
    published_parameters: float | None = Field(None, gt=0)
    """Total parameter count as its model card or paper states it."""
    published_active_parameters: float | None = Field(None, gt=0)
    source: str = ""
    """Where the numbers are from."""

    @property
    def moe_layers(self) -> int:
        """Layers that have experts."""
        return self.num_hidden_layers - self.moe.dense_layers if self.moe else 0

    @property
    def dense_layers(self) -> int:
        """Layers that have a dense MLP."""
        return self.num_hidden_layers - self.moe_layers

    @property
    def linear_layers(self) -> int:
        """Layers that keep a constant state."""
        return self.linear_attention.layers if self.linear_attention else 0

    @property
    def attention_layers(self) -> int:
        """Layers that keep keys and values."""
        return self.num_hidden_layers - self.linear_layers

    @property
    def mixes_windows(self) -> bool:
        """Whether some layers have a sliding window and others do not."""
        return 0 < self.sliding_window_layers < self.attention_layers

    @property
    def linear_parameters_per_layer(self) -> int:
        """Of a linear attention layer: projections in and out."""
        spec = self.linear_attention
        return self.hidden_size * (spec.input_width + spec.value_width) if spec else 0

    @property
    def attention_parameters_per_layer(self) -> int:
        """Query, key, value and output projections, and biases; of MLA as in DeepSeek-V2, section 2.1."""
        heads, hidden = self.num_attention_heads, self.hidden_size
        if self.mla is None:
            queries, keys = heads * self.head_dim, self.num_key_value_heads * self.head_dim
            gated = queries * (1 + self.attention_output_gate)
            return (gated + 2 * keys) * (hidden + self.attention_bias) + queries * hidden
        mla = self.mla
        queries = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        query = mla.q_lora_rank * (hidden + queries) if mla.q_lora_rank else hidden * queries
        down = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        up = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        return query + down + up + heads * mla.v_head_dim * hidden

    @property
    def mlp_parameters_per_layer(self) -> int:
        """Of a dense layer's MLP."""
        return self._mlp_parameters(self.intermediate_size)

    @property
    def expert_parameters(self) -> int:
        """Of one routed expert; 0 without experts."""
        return self._mlp_parameters(self.moe.moe_intermediate_size) if self.moe else 0

    @property
    def shared_expert_parameters_per_layer(self) -> int:
        """Of the experts every token visits."""
        return self._mlp_parameters(self.moe.shared_intermediate_size) if self.moe else 0

    @property
    def router_parameters_per_layer(self) -> int:
        """Of the gate that chooses experts."""
        return self.hidden_size * self.moe.num_experts if self.moe else 0

    @property
    def norm_parameters(self) -> int:
        """Of all norms: in each layer and the last, of query and key heads, of MLA's latents."""
        of_heads = 2 * self.head_dim * self.qk_norm
        if self.mla:
            of_heads += self.mla.q_lora_rank + self.mla.kv_lora_rank
        hidden = (self.num_hidden_layers * self.norms_per_layer + 1) * self.hidden_size
        return hidden + self.attention_layers * of_heads

    @property
    def embedding_parameters(self) -> int:
        """Of the input embedding alone."""
        return self.vocab_size * self.hidden_size

    @property
    def lm_head_parameters(self) -> int:
        """Stored for the LM head: none when it is the input embedding."""
        return 0 if self.tie_word_embeddings else self.embedding_parameters

    @property
    def parameters(self) -> int:
        """All of the model's."""
        return self._parameters(self.moe.num_experts if self.moe else 0)

    @property
    def active_parameters(self) -> int:
        """Those one token uses: its experts only, and both embeddings, as most model cards count."""
        return self._parameters(self.moe.num_experts_per_tok if self.moe else 0)

    def kv_bytes_per_token(self, dtype: str = "bfloat16") -> float:
        """Keys and values of one token over all layers and heads, stored as ``dtype``.

        2*layers*KV*d numbers; MLA: layers*(kv_lora_rank + qk_rope_head_dim). Layers with a sliding window
        count too: they hold the newest ``sliding_window`` tokens only. Linear attention layers hold none.
        """
        numbers = 2 * self.num_key_value_heads * self.head_dim
        if self.mla:
            numbers = self.mla.kv_lora_rank + self.mla.qk_rope_head_dim
        return self.attention_layers * numbers * dtype_bytes(dtype)

    def _mlp_parameters(self, width: int) -> int:
        return (3 if self.gated_mlp else 2) * self.hidden_size * width

    def _parameters(self, experts: int) -> int:
        moe_layer = (
            self.router_parameters_per_layer
            + self.shared_expert_parameters_per_layer
            + experts * self.expert_parameters
        )
        return (
            self.attention_layers * self.attention_parameters_per_layer
            + self.linear_layers * self.linear_parameters_per_layer
            + self.dense_layers * self.mlp_parameters_per_layer
            + self.moe_layers * moe_layer
            + self.norm_parameters
            + self.learned_positions * self.hidden_size
            + self.embedding_parameters
            + self.lm_head_parameters
        )


def load_model(name_or_path: str, base: Path | None = None) -> ModelSpec:
    """A model of the catalogue by any of its names, or one from a Hugging Face config.json.

    A path, relative to ``base``, ends with ``.json`` or is the folder that holds a config.json.

    Raises:
        ScenarioError: for an unknown name, or with all faults of the file, a line each.
    """
    path = (base or Path()) / name_or_path
    if (path / "config.json").is_file():
        path = path / "config.json"
    if path.suffix == ".json":
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
        return from_config(read(path), name, str(path))
    facts = catalog.entry("models", name_or_path)
    for key in ("aliases", "verified"):
        facts.pop(key, None)
    return build(ModelSpec, facts, f"catalogue model {facts['name']}")


def from_config(config: Mapping[str, Any], name: str, where: str = "config.json") -> ModelSpec:
    """The model that a Hugging Face configuration describes; ``where`` is named in errors.

    Raises:
        ScenarioError: if the architecture is not understood (the message says what is missing), or a key is
            missing or wrong.
    """
    return build(ModelSpec, {"name": name, **model_facts(config, where)}, where)
