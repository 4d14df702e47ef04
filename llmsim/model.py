"""A model as numbers: architecture to parameters, FLOPs and KV bytes a token."""

from typing import Literal

from pydantic import Field, PositiveInt

from llmsim.specification import specification

Dtype = Literal["float32", "bfloat16", "float16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
"""How weights, activations or KV are stored."""


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
class ModelSpec:
    """A decoder-only transformer. Field names are those of Hugging Face's config.json."""

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
    qk_norm: bool = False
    sliding_window: PositiveInt | None = None
    """Tokens a windowed layer attends to; None: every layer attends to all."""
    sliding_window_layers: int = Field(0, ge=0)
    """How many of the layers have the window."""
    moe: MoeSpec | None = None
    mla: MlaSpec | None = None
    dtype: Dtype = "bfloat16"
    """In which the weights are published, when not quantized."""
    quantization: Dtype | None = None
    """In which the linear layers' weights are published, where it differs from ``dtype``."""
    published_parameters: float | None = Field(None, gt=0)
    """Total parameter count as its model card or paper states it."""
    published_active_parameters: float | None = Field(None, gt=0)
    source: str = ""
    """Where the numbers are from."""
