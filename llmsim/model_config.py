"""What the keys of a Hugging Face config.json mean: the one place that knows architectures.

Stands below ``model``, which makes a ``ModelSpec`` of the facts found here. What a configuration leaves out
has the default of the architecture's class in the Transformers library (``configuration_<model>.py`` of
huggingface/transformers); what an architecture fixes in code (``modeling_<model>.py``) is a trait here. An
architecture that the fields of ``ModelSpec`` cannot hold is refused, never guessed.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from llmsim.catalog import suggestion
from llmsim.errors import ScenarioError

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

_NEEDED = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
_OTHERS = ("attention_output_gate", "learned_positions", "linear_attention", "norms_per_layer", "parallel_attention")
_DTYPES = ("bfloat16", "float16", "float32")


def read(path: Path) -> Mapping[str, Any]:
    """The configuration in a JSON file.

    Raises:
        ScenarioError: if the file cannot be read or holds no JSON object.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: the model file cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ScenarioError(f"{path}: not a JSON file: {error}.") from None
    if not isinstance(config, dict):
        raise ScenarioError(f"{path}: must hold a JSON object with keys, not a {type(config).__name__}.")
    return config


def model_facts(config: Mapping[str, Any], where: str) -> Facts:
    """Fields of ``ModelSpec``, the name apart, from a configuration; ``where`` is named in errors.

    Raises:
        ScenarioError: if the architecture or its quantization is not understood, or a key is missing or
            wrong.
    """
    text = config.get("text_config", config)  # the language part of a model that also sees
    name, architecture = _architecture(config.get("architectures") or text.get("architectures"), where)
    # null says "none", which is not the same as leaving the key to its default
    given = architecture.translate(architecture.defaults | text)
    given = {key: value for key, value in given.items() if value is not None}
    _check(given, where)
    heads = given["num_attention_heads"]
    mla = _mla(given, where)
    head_dim = mla["qk_nope_head_dim"] + mla["qk_rope_head_dim"] if mla else given["hidden_size"] // heads
    return {
        "architecture": name,
        **{key: given[key] for key in _NEEDED},
        "num_key_value_heads": given.get("num_key_value_heads", heads),
        "head_dim": head_dim if mla else given.get("head_dim", head_dim),
        "tie_word_embeddings": given.get("tie_word_embeddings", config.get("tie_word_embeddings", False)),
        "attention_bias": given.get("attention_bias", False),
        "qk_norm": given.get("use_qk_norm", False),
        **{key: given[key] for key in _OTHERS if key in given},
        **_window(given),
        "moe": _moe(given, where),
        "mla": mla,
        "dtype": _dtype(given, where),
        **_quantization(config.get("quantization_config") or given.get("quantization_config"), where),
        "source": where,
        **architecture.traits,
    }


def _architecture(named: Any, where: str) -> tuple[str, Architecture]:
    if not isinstance(named, list) or not named:
        raise ScenarioError(f"{where}: architectures is missing: a list with the name of the model's class.")
    name = str(named[0])
    if name in REFUSED:
        raise ScenarioError(f"{where}: architecture {name!r} is not supported: it has {REFUSED[name]}.")
    if name not in ARCHITECTURES:
        hint, known = suggestion(name, ARCHITECTURES), ", ".join(ARCHITECTURES)
        raise ScenarioError(f"{where}: architecture {name!r} is not known{hint} Known: {known}.")
    return name, ARCHITECTURES[name]


def _check(given: Facts, where: str) -> None:
    """Whole numbers that this module computes with; ``ModelSpec`` checks the rest."""
    counted = (*_NEEDED, "sliding_window_pattern", "moe_layer_freq", "decoder_sparse_step")
    faults = [f"{where}: {key} is missing." for key in _NEEDED if key not in given]
    faults += [
        f"{where}: {key} = {given[key]!r}: must be a whole number, at least 1."
        for key in counted
        if key in given and not (isinstance(given[key], int) and given[key] >= 1)
    ]
    narrow, wide = given.get("word_embed_proj_dim"), given.get("hidden_size")
    if narrow is not None and narrow != wide:
        faults.append(f"{where}: word_embed_proj_dim = {narrow!r}: must be the hidden_size {wide!r} to be supported.")
    if faults:
        raise ScenarioError("\n".join(faults))


def _window(given: Facts) -> Facts:
    """The window and how many layers have it: as listed, or all but every n-th, or from one layer on."""
    window, layers = given.get("sliding_window"), given["num_hidden_layers"]
    if not window or given.get("use_sliding_window") is False:
        return {}
    if "layer_types" in given:
        count = given["layer_types"].count("sliding_attention")
    elif "sliding_window_pattern" in given:
        count = layers - layers // given["sliding_window_pattern"]
    else:
        count = layers - given.get("max_window_layers", 0)
    return {"sliding_window": window, "sliding_window_layers": count} if count > 0 else {}


def _moe(given: Facts, where: str) -> Facts | None:
    keys = ("n_routed_experts", "num_local_experts", "num_experts")
    experts = next((given[key] for key in keys if given.get(key)), None)
    if experts is None:
        return None
    per_token = given.get("num_experts_per_tok", given.get("experts_per_token"))
    if per_token is None:
        raise ScenarioError(f"{where}: num_experts_per_tok is missing, but the model has {experts} experts.")
    size = given.get("moe_intermediate_size", given["intermediate_size"])
    return {
        "num_experts": experts,
        "num_experts_per_tok": per_token,
        "moe_intermediate_size": size,
        "shared_intermediate_size": given.get(
            "shared_expert_intermediate_size", given.get("n_shared_experts", 0) * size
        ),
        "dense_layers": _dense_layers(given),
    }


def _dense_layers(given: Facts) -> int:
    """Layers without experts: the first ones, those listed, and those between every so many."""
    first, listed = given.get("first_k_dense_replace", 0), given.get("mlp_only_layers", ())
    every, step = given.get("moe_layer_freq", 1), given.get("decoder_sparse_step", 1)
    return sum(
        layer < first or layer in listed or layer % every != 0 or (layer + 1) % step != 0
        for layer in range(given["num_hidden_layers"])
    )


def _mla(given: Facts, where: str) -> Facts | None:
    if "kv_lora_rank" not in given:
        return None
    keys = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    missing = [key for key in keys if not isinstance(given.get(key), int)]
    if missing:
        raise ScenarioError("\n".join(f"{where}: {key} is missing or not a whole number." for key in missing))
    return {"q_lora_rank": given.get("q_lora_rank", 0), **{key: given[key] for key in keys}}


def _dtype(given: Facts, where: str) -> str:
    """As published; a configuration without it is bfloat16, in which servers then compute."""
    dtype = given.get("torch_dtype", given.get("dtype", "bfloat16"))
    if dtype not in _DTYPES:
        raise ScenarioError(f"{where}: torch_dtype = {dtype!r}: allowed are {', '.join(_DTYPES)}.")
    return str(dtype)


def _quantization(config: Mapping[str, Any] | None, where: str) -> Facts:
    if not config:
        return {}
    method, algorithm = str(config.get("quant_method")), str(config.get("quant_algo"))
    bits = config.get("bits", config.get("w_bit", 4))
    dtypes = {
        "fp8": "fp8",
        "fbgemm_fp8": "fp8",
        "mxfp4": "mxfp4",
        "awq": f"int{bits}",
        "gptq": f"int{bits}",
        "bitsandbytes": "int8" if config.get("load_in_8bit") else "int4",
        "modelopt": {"NVFP4": "nvfp4", "FP8": "fp8"}.get(algorithm),
        "compressed-tensors": _compressed_tensors(config),
    }
    dtype = dtypes.get(method)
    if dtype not in ("fp8", "int8", "int4", "mxfp4", "nvfp4"):
        raise ScenarioError(
            f"{where}: quantization_config is not understood: method {method!r}, quant_algo {algorithm!r}, "
            f"bits {bits!r}. Known methods: {', '.join(dtypes)}; of fp8, int8, int4, mxfp4 or nvfp4 weights."
        )
    return {"quantization": dtype, "fp8_block_scales": dtype == "fp8" and "weight_block_size" in config}


def _compressed_tensors(config: Mapping[str, Any]) -> str | None:
    """The dtype of the first group's weights (vllm-project/compressed-tensors, ``QuantizationArgs``)."""
    groups = list((config.get("config_groups") or {}).values())
    weights = groups[0].get("weights", {}) if groups else {}
    kinds = {"float8": "fp8", "int8": "int8", "int4": "int4", "float4": "nvfp4"}
    return kinds.get(f"{weights.get('type')}{weights.get('num_bits')}")
