"""Models: parameters and KV bytes against what is published, and the reading of config.json."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from llmsim import catalog
from llmsim.errors import ScenarioError
from llmsim.model import ModelSpec, dtype_bytes, from_config, load_model

MODELS = catalog.names("models")


def a_config(**changes: Any) -> dict[str, Any]:
    """Llama-3.1-8B's config.json, with ``changes`` (None: left out)."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
    }
    return {key: value for key, value in (config | changes).items() if value is not None}


def layers(count: int, hidden: int, heads: int, kv_heads: int | None, intermediate: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": count,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
    }


DEEPSEEK_MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
DEEPSEEK_V3 = a_config(
    architectures=["DeepseekV3ForCausalLM"],
    **layers(61, 7168, 128, 128, 18432),
    **DEEPSEEK_MLA,
    q_lora_rank=1536,
    n_routed_experts=256,
    num_experts_per_tok=8,
    n_shared_experts=1,
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
    moe_layer_freq=1,
    vocab_size=129280,
    quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
)
KIMI_K2 = DEEPSEEK_V3 | layers(61, 7168, 64, 64, 18432)
KIMI_K2 |= {"n_routed_experts": 384, "first_k_dense_replace": 1, "vocab_size": 163840}
DEEPSEEK_V2_LITE = a_config(
    architectures=["DeepseekV2ForCausalLM"],
    **layers(27, 2048, 16, 16, 10944),
    **DEEPSEEK_MLA,
    n_routed_experts=64,
    num_experts_per_tok=6,
    n_shared_experts=2,
    moe_intermediate_size=1408,
    first_k_dense_replace=1,
    vocab_size=102400,
)
GPT_OSS_120B = a_config(
    architectures=["GptOssForCausalLM"],
    **layers(36, 2880, 64, 8, 2880),
    head_dim=64,
    num_local_experts=128,
    num_experts_per_tok=4,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
    vocab_size=201088,
    torch_dtype=None,
    quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
)
GEMMA_2_9B = a_config(
    architectures=["Gemma2ForCausalLM"],
    **layers(42, 3584, 16, 8, 14336),
    head_dim=256,
    sliding_window=4096,
    tie_word_embeddings=None,
    vocab_size=256000,
)
GEMMA_3_27B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "vision_config": {"hidden_size": 1152},
    "text_config": {**layers(62, 5376, 32, 16, 21504), "head_dim": 128, "sliding_window": 1024},
    "torch_dtype": "bfloat16",
}
PHI_3_MINI = a_config(
    architectures=["Phi3ForCausalLM"], **layers(32, 3072, 32, 32, 8192), sliding_window=2047, vocab_size=32064
)
MISTRAL_7B = a_config(architectures=["MistralForCausalLM"], sliding_window=4096, vocab_size=32000)
QWEN_2_5_7B = a_config(
    architectures=["Qwen2ForCausalLM"],
    **layers(28, 3584, 28, 4, 18944),
    attention_bias=None,
    max_position_embeddings=32768,
    max_window_layers=28,
    sliding_window=131072,
    use_sliding_window=False,
    vocab_size=152064,
)
QWEN_3_30B_A3B = a_config(
    architectures=["Qwen3MoeForCausalLM"],
    **layers(48, 2048, 32, 4, 6144),
    head_dim=128,
    decoder_sparse_step=1,
    max_position_embeddings=40960,
    mlp_only_layers=[],
    moe_intermediate_size=768,
    num_experts=128,
    num_experts_per_tok=8,
    vocab_size=151936,
)
QWEN_1_5_MOE = a_config(
    architectures=["Qwen2MoeForCausalLM"],
    **layers(24, 2048, 16, 16, 5632),
    decoder_sparse_step=1,
    moe_intermediate_size=1408,
    num_experts=60,
    num_experts_per_tok=4,
    shared_expert_intermediate_size=5632,
    vocab_size=151936,
)
MINIMAX_M2 = a_config(
    architectures=["MiniMaxM2ForCausalLM"],
    **layers(62, 3072, 48, 8, 1536),
    head_dim=128,
    num_local_experts=256,
    num_experts_per_tok=8,
    vocab_size=200064,
)

LLAMA_4_TEXT = {
    **layers(48, 5120, 40, 8, 8192),
    "attention_chunk_size": 8192,
    "head_dim": 128,
    "intermediate_size_mlp": 16384,
    "max_position_embeddings": 1048576,
    "num_experts_per_tok": 1,
    "vocab_size": 202048,
}
LLAMA_4_SCOUT = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {**LLAMA_4_TEXT, "interleave_moe_layer_step": 1, "num_local_experts": 16},
}
LLAMA_4_MAVERICK = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": {**LLAMA_4_TEXT, "interleave_moe_layer_step": 2, "num_local_experts": 128},
}
GLM_4_5 = a_config(
    architectures=["Glm4MoeForCausalLM"],
    **layers(92, 5120, 96, 8, 12288),
    attention_bias=True,
    first_k_dense_replace=3,
    head_dim=128,
    moe_intermediate_size=1536,
    n_routed_experts=160,
    n_shared_experts=1,
    num_experts_per_tok=8,
    use_qk_norm=True,
    vocab_size=151552,
)
GPT_J = {
    "architectures": ["GPTJForCausalLM"],
    "n_embd": 4096,
    "n_head": 16,
    "n_inner": None,
    "n_layer": 28,
    "n_positions": 2048,
    "tie_word_embeddings": False,
    "vocab_size": 50400,
}
OPT_13B = {
    "architectures": ["OPTForCausalLM"],
    "ffn_dim": 20480,
    "hidden_size": 5120,
    "max_position_embeddings": 2048,
    "num_attention_heads": 40,
    "num_hidden_layers": 40,
    "torch_dtype": "float16",
    "vocab_size": 50272,
    "word_embed_proj_dim": 5120,
}
BLOOM_7B1 = {
    "architectures": ["BloomForCausalLM"],
    "n_embed": 4096,
    "n_layer": 30,
    "num_attention_heads": 32,
    "seq_length": 2048,
    "vocab_size": 250880,
}
FALCON_7B = {
    "architectures": ["FalconForCausalLM"],
    "hidden_size": 4544,
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "parallel_attn": True,
    "vocab_size": 65024,
}
FALCON_40B = FALCON_7B | {"hidden_size": 8192, "new_decoder_architecture": True, "num_attention_heads": 128}
FALCON_40B |= {"num_hidden_layers": 60, "num_kv_heads": 8}
QWEN_3_NEXT = a_config(
    architectures=["Qwen3NextForCausalLM"],
    **layers(48, 2048, 16, 2, 5120),
    decoder_sparse_step=1,
    full_attention_interval=4,
    head_dim=256,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    linear_value_head_dim=128,
    max_position_embeddings=262144,
    mlp_only_layers=[],
    moe_intermediate_size=512,
    num_experts=512,
    num_experts_per_tok=10,
    shared_expert_intermediate_size=512,
    vocab_size=151936,
)
QWEN_3_6_35B_A3B = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "tie_word_embeddings": False,
    "text_config": {
        key: value for key, value in QWEN_3_NEXT.items() if key not in ("architectures", "intermediate_size")
    }
    | {"num_hidden_layers": 40, "num_experts": 256, "num_experts_per_tok": 8, "vocab_size": 248320}
    | {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10, "mamba_ssm_dtype": "float32"},
}
MINIMAX_TEXT_01 = a_config(
    architectures=["MiniMaxText01ForCausalLM"],
    **layers(80, 6144, 64, 8, 9216),
    attn_type_list=[0, 0, 0, 0, 0, 0, 0, 1] * 10,
    head_dim=128,
    max_position_embeddings=10240000,
    num_experts_per_tok=2,
    num_local_experts=32,
    shared_intermediate_size=0,
    vocab_size=200064,
)
PHI_2 = a_config(
    architectures=["PhiForCausalLM"], **layers(32, 2560, 32, 32, 10240), max_position_embeddings=2048, vocab_size=51200
)


def a_model(config: dict[str, Any]) -> ModelSpec:
    return from_config(config, "a model")


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_as_published(name: str) -> None:
    model = load_model(name)
    assert model.published_parameters
    assert model.parameters == pytest.approx(model.published_parameters, rel=0.01)
    if not model.moe:
        assert model.active_parameters == model.parameters
        return
    # model cards count both embeddings, the LM head alone, or neither
    embeddings = (0, model.embedding_parameters, model.embedding_parameters + model.lm_head_parameters)
    counts = [model.active_parameters - left_out for left_out in embeddings]
    whole_billions = 0.5e9 if name == "qwen3-next-80b-a3b" else 0.0  # its card says 3B
    published = pytest.approx(model.published_active_parameters, rel=0.025, abs=whole_billions)
    assert any(count == published for count in counts), counts


def test_the_catalogue_is_large_and_every_model_in_it_is_verified() -> None:
    """Two sources agree on each: its config.json, and the parameter count its authors publish."""
    facts = [catalog.entry("models", name) for name in MODELS]
    assert len(facts) >= 40
    assert all(each["verified"] and each["source"].startswith("config.json of ") for each in facts)
    assert all("; parameters: " in each["source"] for each in facts)


def test_known_facts_of_the_catalogue() -> None:
    """Llama 2, Llama 3 herd and Qwen papers; Mistral's and Qwen's model cards."""
    assert load_model("llama-3.1-8b").parameters == 8_030_261_248, "as safetensors' index counts them"
    assert load_model("llama-2-7b").parameters == 6_738_415_616
    assert load_model("qwen3-30b-a3b").active_parameters == pytest.approx(3.3e9, rel=0.02)
    assert load_model("mixtral-8x7b").active_parameters == pytest.approx(12.9e9, rel=0.01)
    kv_bytes = {
        "llama-3.1-8b": 131_072,
        "llama-3.1-70b": 327_680,
        "llama-2-7b": 524_288,
        "qwen2.5-7b": 57_344,
        "qwen3-30b-a3b": 98_304,
    }
    assert {name: load_model(name).kv_bytes_per_token("bfloat16") for name in kv_bytes} == kv_bytes
    assert load_model("llama-3.1-8b").kv_bytes_per_token("fp8") == 65_536
    assert load_model("falcon-7b").kv_bytes_per_token("bfloat16") == 32 * 2 * 64 * 2, "one KV head (multi-query)"


@pytest.mark.parametrize("name", MODELS)
def test_the_catalogue_agrees_with_the_public_configurations(name: str, shared_data: Path) -> None:
    facts = catalog.entry("models", name)
    known = {alias.lower().replace("/", "_") for alias in (name, *facts["aliases"])}
    with (shared_data / "catalog/model_specs.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["model"].lower().replace("/", "_") in known]
    columns = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads"}
    columns |= {"kv_heads": "num_key_value_heads", "intermediate": "intermediate_size", "vocab": "vocab_size"}
    if not rows:
        pytest.skip("no public configuration of it was collected")
    if facts["architecture"].startswith("Llama4"):
        columns.pop("intermediate")  # that of its experts there
    for row in rows:
        given = {key: float(row[column]) for column, key in columns.items() if row[column]}
        assert given == {key: facts[key] for key in given}, row["source"]


@pytest.mark.parametrize(
    ("config", "billions", "active_billions"),
    [
        pytest.param(DEEPSEEK_V3, 671, 37, id="DeepSeek-V3 (arXiv 2412.19437)"),
        pytest.param(KIMI_K2, 1026, 32.6, id="Kimi K2 (model page; arXiv 2507.20534)"),
        pytest.param(DEEPSEEK_V2_LITE, 15.7, None, id="DeepSeek-V2-Lite (arXiv 2405.04434, appendix B)"),
        pytest.param(GPT_OSS_120B, 116.8, None, id="gpt-oss-120b (arXiv 2508.10925, table 1)"),
        pytest.param(GEMMA_2_9B, 9.24, None, id="Gemma 2 (arXiv 2408.00118, table 2)"),
        pytest.param(GEMMA_3_27B, 27.0, None, id="Gemma 3 without vision (arXiv 2503.19786, table 1)"),
        pytest.param(PHI_3_MINI, 3.82, None, id="Phi-3-mini (arXiv 2404.14219)"),
        pytest.param(MISTRAL_7B, 7.24, None, id="Mistral-7B-v0.1 (model card)"),
        pytest.param(QWEN_2_5_7B, 7.61, None, id="Qwen2.5-7B (model card)"),
        pytest.param(QWEN_3_30B_A3B, 30.5, 3.3, id="Qwen3-30B-A3B (model card)"),
        pytest.param(QWEN_1_5_MOE, 14.3, 2.7, id="Qwen1.5-MoE-A2.7B (model card)"),
        pytest.param(MINIMAX_M2, 229, None, id="MiniMax-M2 (model card)"),
        pytest.param(QWEN_3_NEXT, 80, None, id="Qwen3-Next-80B-A3B (model card)"),
        pytest.param(QWEN_3_6_35B_A3B, 35, None, id="Qwen3.6-35B-A3B (model card)"),
        pytest.param(MINIMAX_TEXT_01, 456, None, id="MiniMax-Text-01 (arXiv 2501.08313)"),
        pytest.param(LLAMA_4_SCOUT, 107.8, 17, id="Llama 4 Scout without vision (model card)"),
        pytest.param(LLAMA_4_MAVERICK, 400, 17, id="Llama 4 Maverick (model card)"),
        pytest.param(GLM_4_5, 355, None, id="GLM-4.5 (arXiv 2508.06471)"),
        pytest.param(GPT_J, 6.05, None, id="GPT-J (model card)"),
        pytest.param(OPT_13B, 12.85, None, id="OPT-13B (arXiv 2205.01068)"),
        pytest.param(BLOOM_7B1, 7.07, None, id="BLOOM-7b1 (model card)"),
        pytest.param(FALCON_7B, 6.92, None, id="Falcon-7B (arXiv 2311.16867)"),
        pytest.param(FALCON_40B, 41.3, None, id="Falcon-40B (arXiv 2311.16867)"),
        pytest.param(PHI_2, 2.78, None, id="Phi-2 (model card)"),
    ],
)
def test_parameters_of_configurations_are_as_published(
    config: dict[str, Any], billions: float, active_billions: float | None
) -> None:
    model = a_model(config)
    assert model.parameters == pytest.approx(billions * 1e9, rel=0.01)
    if active_billions:
        assert model.active_parameters == pytest.approx(active_billions * 1e9, rel=0.035)


def test_a_configuration_gives_the_model_of_the_catalogue() -> None:
    for name, config in {
        "llama-3.1-8b": a_config(),
        "qwen2.5-7b": QWEN_2_5_7B,
        "qwen3-30b-a3b": QWEN_3_30B_A3B,
        "deepseek-v3": DEEPSEEK_V3,
        "deepseek-v2-lite": DEEPSEEK_V2_LITE,
        "kimi-k2": KIMI_K2,
        "gpt-oss-120b": GPT_OSS_120B,
        "gemma-2-9b": GEMMA_2_9B,
        "gemma-3-27b": GEMMA_3_27B,
        "phi-2": PHI_2,
        "phi-3-mini-4k": PHI_3_MINI,
        "mistral-7b-v0.1": MISTRAL_7B,
        "minimax-m2": MINIMAX_M2,
        "minimax-text-01": MINIMAX_TEXT_01,
        "qwen3-next-80b-a3b": QWEN_3_NEXT,
        "glm-4.5": GLM_4_5,
        "llama-4-maverick": LLAMA_4_MAVERICK,
        "gpt-j-6b": GPT_J,
        "opt-13b": OPT_13B,
        "bloom-7b1": BLOOM_7B1,
        "falcon-7b": FALCON_7B,
        "falcon-40b": FALCON_40B,
    }.items():
        mine, known = a_model(config), load_model(name)
        assert mine.parameters == known.parameters
        assert mine.kv_bytes_per_token("bfloat16") == known.kv_bytes_per_token("bfloat16")
        assert mine.active_parameters == known.active_parameters
        for field in ("attention_bias", "gated_mlp", "parallel_attention", "qk_norm", "norms_per_layer"):
            assert getattr(mine, field) == getattr(known, field), (name, field)
        for field in (
            "sliding_window",
            "sliding_window_layers",
            "moe",
            "mla",
            "learned_positions",
            "linear_attention",
            "attention_output_gate",
        ):
            assert getattr(mine, field) == getattr(known, field), (name, field)


def test_latent_attention_keeps_one_vector_a_token_and_layer() -> None:
    assert a_model(DEEPSEEK_V3).kv_bytes_per_token("bfloat16") == 61 * (512 + 64) * 2 == 70_272


@pytest.mark.parametrize(
    ("config", "window", "count"),
    [
        (a_config(), None, 0),
        (MISTRAL_7B, 4096, 32),
        (a_config(architectures=["MistralForCausalLM"]), 4096, 32),  # the class's default
        (QWEN_2_5_7B, None, 0),
        (QWEN_2_5_7B | {"use_sliding_window": True, "max_window_layers": 20}, 131072, 8),
        (PHI_3_MINI, 2047, 32),
        (GEMMA_2_9B, 4096, 21),
        (GEMMA_3_27B, 1024, 52),
        (GPT_OSS_120B, 128, 18),
    ],
)
def test_sliding_windows(config: dict[str, Any], window: int | None, count: int) -> None:
    model = a_model(config)
    assert (model.sliding_window, model.sliding_window_layers) == (window, count)


def test_a_mistral_with_its_window_set_to_null_has_none() -> None:
    config = a_config(architectures=["MistralForCausalLM"]) | {"sliding_window": None}
    assert a_model(config).sliding_window is None


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8}}},
            },
            "fp8",
        ),
    ],
)
def test_quantization(quantization: dict[str, Any], dtype: str) -> None:
    assert a_model(a_config(quantization_config=quantization)).quantization == dtype


def test_what_quantization_is_of() -> None:
    assert a_model(GPT_OSS_120B).quantized_layers == "experts"
    assert a_model(DEEPSEEK_V3).fp8_block_scales
    assert not a_model(a_config(quantization_config={"quant_method": "fp8"})).fp8_block_scales


def test_bits_a_weight() -> None:
    bits = {dtype: 8 * dtype_bytes(dtype) for dtype in ("bfloat16", "fp8", "mxfp4", "nvfp4")}
    assert bits == {"bfloat16": 16, "fp8": 8, "mxfp4": 4.25, "nvfp4": 4.5}
    assert 8 * dtype_bytes("int4") == pytest.approx(4.16, abs=0.01)


def test_gpt_oss_fits_its_published_file_size() -> None:
    """60.8 GiB checkpoint (arXiv 2508.10925, table 1): experts in mxfp4, all else in bfloat16."""
    model = a_model(GPT_OSS_120B)
    assert model.moe
    experts = model.moe_layers * model.moe.num_experts * model.expert_parameters
    size = experts * dtype_bytes("mxfp4") + (model.parameters - experts) * dtype_bytes("bfloat16")
    assert size / 2**30 == pytest.approx(60.8, rel=0.01)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (a_config(architectures=["NemotronHForCausalLM"]), "not supported: it has state-space layers"),
        (a_config(architectures=["LlamaForCausalML"]), "not known: did you mean 'LlamaForCausalLM'"),
        (a_config(architectures=None), "config.json: architectures is missing"),
        (a_config(vocab_size=None), "config.json: vocab_size is missing"),
        (a_config(hidden_size="big"), "hidden_size = 'big': must be a whole number"),
        (a_config(num_key_value_heads=-8), "num_key_value_heads = -8: must be greater than 0"),
        (a_config(torch_dtype="float64"), "torch_dtype = 'float64': allowed are bfloat16"),
        (a_config(num_experts=8), "num_experts_per_tok is missing, but the model has 8 experts"),
        (DEEPSEEK_V3 | {"v_head_dim": None}, "v_head_dim is missing"),
        (a_config(architectures=["KimiK3ForConditionalGeneration"]), "not supported: it has linear attention layers"),
        (MINIMAX_TEXT_01 | {"attn_type_list": None}, "linear_attention.layers"),
        (QWEN_3_NEXT | {"full_attention_interval": None}, "linear_attention.layers"),
        (QWEN_3_NEXT | {"linear_num_key_heads": "many"}, 'linear_attention.num_key_heads = "many"'),
        (OPT_13B | {"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512: must be the hidden_size 5120"),
        (a_config(quantization_config={"quant_method": "aqlm"}), "method 'aqlm'"),
        (a_config(quantization_config={"quant_method": "gptq", "bits": 3}), "bits 3"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        a_model(config)
    assert message in str(raised.value)


def test_all_missing_keys_are_told_at_once() -> None:
    with pytest.raises(ScenarioError) as raised:
        a_model(a_config(vocab_size=None, hidden_size=None))
    assert len(str(raised.value).splitlines()) == 2


def test_a_path_is_a_file_or_the_folder_that_holds_it(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(a_config()))
    for given in ("my-model", "my-model/config.json"):
        model = load_model(given, base=tmp_path)
        assert model.name == "my-model"
        assert model.parameters == 8_030_261_248
    assert load_model("llama-3.1-8b", base=tmp_path).name == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), ("{", "not a JSON file"), ("[]", "must hold a JSON object")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "mine.json").write_text(text)
    with pytest.raises(ScenarioError, match=f"mine.json: .*{message}"):
        load_model("mine.json", tmp_path)


def test_an_unknown_model_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match=r"model 'llama-3.1-7b' is not in the catalogue: did you mean"):
        load_model("llama-3.1-7b")
