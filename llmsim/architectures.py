"""The architectures of models: what each class of the Transformers library means by its configuration.

Stands below ``model_config``, which reads a config.json by it. What a configuration leaves out has the default of the
architecture's class in the Transformers library (``configuration_<model>.py`` of huggingface/transformers); what an
architecture fixes in code (``modeling_<model>.py``) is a trait here. An architecture that the fields of ``ModelSpec``
cannot hold is refused, never guessed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Facts = dict[str, Any]


def _as_it_is(given: Facts) -> Facts:
    return given


class Architecture(NamedTuple):
    """How to read the configuration of one class of models."""

    defaults: Facts
    """Keys of config.json that a file may leave out."""
    traits: Facts
    """Fields of ``ModelSpec`` that the code of the architecture fixes."""
    translate: Callable[[Facts], Facts] = _as_it_is
    """From the architecture's own keys to the common ones."""


def _gptj(given: Facts) -> Facts:
    hidden = given.get("n_embd")
    return {
        **given,
        "num_hidden_layers": given.get("n_layer"),
        "hidden_size": hidden,
        "num_attention_heads": given.get("n_head"),
        "intermediate_size": given.get("n_inner") or _times(4, hidden),
        "max_position_embeddings": given.get("n_positions"),
    }


def _bloom(given: Facts) -> Facts:
    hidden = given.get("hidden_size", given.get("n_embed"))
    return {
        "num_hidden_layers": given.get("n_layer"),
        "num_attention_heads": given.get("n_head"),
        **given,
        "hidden_size": hidden,
        "intermediate_size": _times(4, hidden),
        "max_position_embeddings": given.get("seq_length", 2048),
    }


def _opt(given: Facts) -> Facts:
    """Its table of positions has two rows more than there are positions."""
    positions = given.get("max_position_embeddings")
    rows = positions + 2 if isinstance(positions, int) else None
    return {**given, "intermediate_size": given.get("ffn_dim"), "learned_positions": rows}


def _falcon(given: Facts) -> Facts:
    """One KV head (multi-query attention), or groups and a norm of its own for the MLP in the newer ones."""
    newer = given.get("new_decoder_architecture", False)
    heads = given.get("num_attention_heads", given.get("n_head"))
    one = given.get("multi_query", True)
    side_by_side = newer or given.get("parallel_attn", True)
    return {
        "num_hidden_layers": given.get("n_layer"),
        "intermediate_size": given.get("ffn_hidden_size") or _times(4, given.get("hidden_size")),
        **given,
        "num_attention_heads": heads,
        "num_key_value_heads": given.get("num_kv_heads", given.get("n_head_kv")) if newer else 1 if one else heads,
        "attention_bias": given.get("bias", False),
        "parallel_attention": side_by_side,
        "norms_per_layer": 2 if newer or not side_by_side else 1,
    }


def _llama4(given: Facts) -> Facts:
    """Every so many layers have experts, of ``intermediate_size``; all but every so many attend to a chunk."""
    chunk, spacing = given.get("attention_chunk_size"), given.get("no_rope_layer_interval", 4)
    return {
        **given,
        "moe_intermediate_size": given.get("intermediate_size"),
        "n_shared_experts": 1,
        "intermediate_size": given.get("intermediate_size_mlp"),
        "decoder_sparse_step": given.get("interleave_moe_layer_step", 1),
        **({"sliding_window": chunk, "sliding_window_pattern": spacing} if chunk else {}),
    }


def _delta_net(given: Facts) -> Facts:
    """Gated DeltaNet in all layers but every so many, or as listed."""
    layers, listed = given.get("num_hidden_layers"), given.get("layer_types")
    linear = listed.count("linear_attention") if listed else _all_but_every(given["full_attention_interval"], layers)
    keys = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    spec = {"layers": linear, "gates_per_head": 2, **{key: given[f"linear_{key}"] for key in keys}}
    return {
        **given,
        "intermediate_size": given.get("intermediate_size", given.get("moe_intermediate_size")),
        "attention_output_gate": given.get("attn_output_gate", True),
        "linear_attention": {**spec, "state_dtype": given.get("mamba_ssm_dtype")},
    }


def _lightning(given: Facts) -> Facts:
    """Lightning attention in the layers whose ``attn_type_list`` says 0, with as many heads as the others."""
    heads, head_dim = given.get("num_attention_heads"), given.get("head_dim")
    kinds = given.get("attn_type_list")
    spec = {
        "layers": kinds.count(0) if isinstance(kinds, list) else None,
        "num_key_heads": heads,
        "num_value_heads": heads,
        "key_head_dim": head_dim,
        "value_head_dim": head_dim,
    }
    return {**given, "linear_attention": spec}


def _all_but_every(step: Any, layers: Any) -> int | None:
    return layers - layers // step if isinstance(layers, int) and isinstance(step, int) and step > 0 else None


def _times(factor: int, number: Any) -> int | None:
    return factor * number if isinstance(number, int) else None


_PLAIN = Architecture({}, {})
_QWEN2 = Architecture({"use_sliding_window": False}, {"attention_bias": True})
_QWEN3 = Architecture({"use_sliding_window": False, "head_dim": 128}, {"qk_norm": True})
_GEMMA2 = Architecture(
    {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2, "tie_word_embeddings": True},
    {"norms_per_layer": 4},
)
_GEMMA3 = Architecture(
    {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
    {"norms_per_layer": 4, "qk_norm": True},
)
_GPT_OSS = Architecture(
    {"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    {"attention_bias": True, "quantized_layers": "experts"},
)
_QWEN3_NEXT = Architecture(
    {
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    },
    {"qk_norm": True},
    _delta_net,
)
_SIDE_BY_SIDE = {"gated_mlp": False, "parallel_attention": True, "norms_per_layer": 1}
_BIASED = {"gated_mlp": False, "attention_bias": True}

ARCHITECTURES: dict[str, Architecture] = {
    "LlamaForCausalLM": _PLAIN,
    "MistralForCausalLM": Architecture({"sliding_window": 4096}, {}),
    "Mistral3ForConditionalGeneration": _PLAIN,
    "MixtralForCausalLM": _PLAIN,
    "PhiForCausalLM": Architecture({}, _BIASED | _SIDE_BY_SIDE),
    "Phi3ForCausalLM": _PLAIN,
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2MoeForCausalLM": _QWEN2,
    "MiMoForCausalLM": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3MoeForCausalLM": _QWEN3,
    "Qwen3VLForConditionalGeneration": _QWEN3,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3,
    "Qwen3NextForCausalLM": _QWEN3_NEXT,
    "Qwen3_5ForConditionalGeneration": _QWEN3_NEXT,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3_NEXT,
    "Gemma2ForCausalLM": _GEMMA2,
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "DeepseekV2ForCausalLM": _PLAIN,
    "DeepseekV3ForCausalLM": _PLAIN,
    "KimiK25ForConditionalGeneration": _PLAIN,
    "Glm4ForCausalLM": Architecture({}, {"norms_per_layer": 4}),
    "Glm4MoeForCausalLM": Architecture({"use_qk_norm": False}, {}),
    "GptOssForCausalLM": _GPT_OSS,
    "MiniMaxText01ForCausalLM": Architecture({"head_dim": 128}, {}, _lightning),
    "MiniMaxM1ForCausalLM": Architecture({"head_dim": 128}, {}, _lightning),
    "MiniMaxM2ForCausalLM": Architecture({}, {"qk_norm": True}),
    "Llama4ForCausalLM": Architecture({"attention_chunk_size": 8192}, {}, _llama4),
    "Llama4ForConditionalGeneration": Architecture({"attention_chunk_size": 8192}, {}, _llama4),
    "GPTJForCausalLM": Architecture({}, _SIDE_BY_SIDE, _gptj),
    "OPTForCausalLM": Architecture({"tie_word_embeddings": True}, _BIASED, _opt),
    "BloomForCausalLM": Architecture({"tie_word_embeddings": True}, _BIASED, _bloom),
    "FalconForCausalLM": Architecture(
        {"tie_word_embeddings": True, "max_position_embeddings": 2048}, {"gated_mlp": False}, _falcon
    ),
}
"""What is understood, by the name under ``architectures``."""

REFUSED: dict[str, str] = {
    "DeciLMForCausalLM": "layers that differ from each other",
    "DeepseekV32ForCausalLM": "sparse attention with an indexer",
    "DeepseekV4ForCausalLM": "compressed sparse attention",
    "Gemma4ForConditionalGeneration": "head sizes that differ between local and global layers",
    "GlmMoeDsaForCausalLM": "sparse attention with an indexer",
    "KimiK3ForConditionalGeneration": "linear attention layers",
    "MiMoV2FlashForCausalLM": "head counts that differ between local and global layers",
    "MiniMaxM3SparseForConditionalGeneration": "sparse attention",
    "NemotronHForCausalLM": "state-space layers",
}
"""What is known but not understood, with what ``ModelSpec`` has no field for."""
