"""What a Hugging Face config.json says of a model, read by what ``architectures`` knows of its class.

Stands below ``model``, which makes a ``ModelSpec`` of the facts found here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmsim.architectures import ARCHITECTURES, REFUSED, Architecture, Facts
from llmsim.catalog import suggestion
from llmsim.errors import ScenarioError

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
