"""The memory ledger against arithmetic, laws, and the KV pools that real servers logged."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim import catalog
from llmsim.deployment import Deployment, batch_defaults
from llmsim.deployment.groups import kv_groups
from llmsim.deployment.layout import kv_bytes_per_token, stages, state_bytes, weights_bytes
from llmsim.deployment.memory import fullest_rank
from llmsim.deployment.overheads import static_fraction
from llmsim.deployment.remedies import remedies
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator
from llmsim.model import ModelSpec, load_model
from llmsim.units import GIB
from tests.cost.factories import a_deployment, a_latent_model, a_windowed_model


def with_memory(deployment: Deployment, memory_bytes: float) -> Deployment:
    return replace(deployment, accelerator=replace(deployment.accelerator, memory_bytes=memory_bytes))


def all_weights(deployment: Deployment) -> float:
    """Bytes over the ranks of one data-parallel rank."""
    total = sum(weights_bytes(deployment, stage) for stage in stages(deployment))
    return total * deployment.tensor_parallel_size


class TestWeights:
    @pytest.mark.parametrize("name", catalog.names("models"))
    def test_one_rank_holds_every_parameter_once(self, name: str) -> None:
        model = replace(load_model(name), quantization=None)
        held = all_weights(a_deployment(model, dtype="bfloat16")) / 2
        assert held == pytest.approx(model.parameters, rel=1e-4)

    def test_one_rank_of_a_latent_model_holds_671_billion_parameters(self) -> None:
        model = replace(a_latent_model(), quantization=None)
        assert all_weights(a_deployment(model)) / 2 == pytest.approx(671e9, rel=0.005)

    @pytest.mark.parametrize("size", [2, 4, 8])
    def test_tensor_parallel_ranks_share_the_matrices(self, size: int) -> None:
        alone = all_weights(a_deployment())
        assert all_weights(a_deployment(tensor_parallel_size=size)) == pytest.approx(alone, rel=1e-3)

    def test_experts_are_shared_over_the_ranks_of_expert_parallelism(self) -> None:
        alone = all_weights(a_deployment("mixtral-8x7b"))
        spread = a_deployment("mixtral-8x7b", tensor_parallel_size=2, data_parallel_size=4, enable_expert_parallel=True)
        experts = 32 * 8 * 3 * 4096 * 14336 * 2
        assert all_weights(spread) * 4 == pytest.approx(experts + 4 * (alone - experts), rel=1e-3)

    @pytest.mark.parametrize(
        ("name", "given", "logged_gib"),
        [
            ("llama-3.1-8b", {}, 14.99),  # vLLM 0.15.1 log
            ("qwen3-30b-a3b", {"quantization": "fp8"}, 29.09),  # vllm#25350
            ("qwen2.5-7b", {}, 14.27),  # vLLM 0.8.4 log
        ],
    )
    def test_weights_take_what_servers_logged(self, name: str, given: Any, logged_gib: float) -> None:
        assert a_deployment(name, **given).ledger().weights_bytes / GIB == pytest.approx(logged_gib, rel=0.01)


class TestKv:
    @pytest.mark.parametrize(("size", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (32, 1)])
    def test_heads_divide_until_one_is_left_then_are_replicated(self, size: int, heads: int) -> None:
        ledger = a_deployment(tensor_parallel_size=size).ledger()
        assert ledger.block_bytes == 16 * 32 * 2 * heads * 128 * 2

    @pytest.mark.parametrize("size", [8, 16])
    def test_a_latent_vector_is_on_every_rank(self, size: int) -> None:
        deployment = a_deployment(a_latent_model(), "h200-sxm", tensor_parallel_size=size)
        assert deployment.ledger().block_bytes == 16 * 70272  # 61 layers * (512 + 64) * 2 bytes

    def test_a_pool_of_53_29_gib_has_27284_blocks(self) -> None:
        """The log of vLLM pull request 10511: an 8B on an H100."""
        deployment = a_deployment(kv_overhead_bytes=0.0, gpu_memory_utilization=1.0)
        memory = deployment.ledger().weights_bytes + 53.29 * GIB
        ledger = with_memory(deployment, memory).ledger()
        assert (ledger.num_gpu_blocks, ledger.kv_tokens) == (27284, 436544)

    def test_fp8_halves_a_block(self) -> None:
        halved = a_deployment(kv_cache_dtype="fp8").ledger()
        assert 2 * halved.block_bytes == a_deployment().ledger().block_bytes

    def test_the_stage_with_the_fewest_blocks_decides(self) -> None:
        deployment = a_deployment(replace(load_model("llama-3.1-8b"), num_hidden_layers=31), pipeline_parallel_size=2)
        assert [stage.layers for stage in stages(deployment)] == [16, 15]
        assert deployment.ledger().block_bytes == 16 * 16 * 4096

    @given(layers=st.integers(1, 130), size=st.integers(1, 16))
    def test_every_layer_is_on_one_stage(self, layers: int, size: int) -> None:
        model = replace(load_model("llama-3.1-8b"), num_hidden_layers=max(layers, size))
        counts = [stage.layers for stage in stages(a_deployment(model, pipeline_parallel_size=size))]
        assert sum(counts) == max(layers, size)
        assert max(counts) - min(counts) <= 1

    @given(gib=st.floats(24, 192), more=st.floats(0, 64), utilization=st.floats(0.8, 1))
    def test_more_memory_never_holds_fewer_tokens(self, gib: float, more: float, utilization: float) -> None:
        deployment = a_deployment(gpu_memory_utilization=utilization, max_num_seqs=128, max_num_batched_tokens=2048)
        small, large = (with_memory(deployment, size * GIB).ledger() for size in (gib, gib + more))
        assert small.num_gpu_blocks <= large.num_gpu_blocks


class TestLedger:
    def test_the_parts_make_the_whole(self) -> None:
        ledger = a_deployment().ledger()
        parts = ledger.weights_bytes + ledger.activation_bytes + ledger.non_torch_bytes + ledger.cuda_graph_bytes
        assert parts + ledger.kv_pool_bytes == pytest.approx(ledger.requested_bytes)
        assert 0 <= ledger.kv_pool_bytes - ledger.num_gpu_blocks * ledger.block_bytes < ledger.block_bytes

    def test_it_is_json(self) -> None:
        ledger = a_deployment().ledger()
        assert json.loads(json.dumps(ledger.as_dict()))["num_gpu_blocks"] == ledger.num_gpu_blocks

    def test_it_prints_a_line_a_part(self) -> None:
        text = "\n".join(a_deployment().ledger().lines())
        assert re.search(r"weights +14\.96 GiB", text)
        assert re.search(r"[\d,]+ blocks of 16 tokens, 2 MiB each", text)

    def test_the_activation_peak_of_29000_tokens_is_2_99_gib(self) -> None:
        """vllm#10517: an 8B that profiles its whole context."""
        deployment = a_deployment(max_num_batched_tokens=29000, max_num_seqs=256)
        assert deployment.ledger().activation_bytes / GIB == pytest.approx(2.99, abs=0.01)

    def test_an_override_replaces_the_pool_and_says_so(self) -> None:
        ledger = a_deployment("llama-3.1-405b", num_gpu_blocks_override=1000).ledger()
        assert (ledger.num_gpu_blocks, ledger.kv_tokens) == (1000, 16000)
        assert any("num_gpu_blocks_override" in note for note in ledger.notes)

    @pytest.mark.parametrize(
        ("name", "defaults"),
        [
            ("h100-sxm", (8192, 1024)),
            ("b200-sxm", (16384, 1024)),
            ("a100-sxm-80gb", (2048, 256)),
            ("l40s", (2048, 256)),
        ],
    )
    def test_batch_defaults_go_by_memory(self, name: str, defaults: tuple[int, int]) -> None:
        assert batch_defaults(load_accelerator(name)) == defaults


class TestMaxModelLen:
    def test_auto_is_the_models_where_it_fits(self) -> None:
        ledger = a_deployment().ledger()
        assert ledger.max_model_len == 131072
        assert not ledger.notes

    def test_auto_is_what_the_pool_holds_beside_the_null_block(self) -> None:
        ledger = a_deployment(num_gpu_blocks_override=100).ledger()
        assert ledger.max_model_len == 99 * 16
        assert any("131072" in note for note in ledger.notes)

    def test_the_error_names_the_largest_that_fits(self) -> None:
        with pytest.raises(ScenarioError, match="max_model_len = 2000") as error:
            a_deployment(num_gpu_blocks_override=100, max_model_len=2000).ledger()
        named = re.search(r"at most (\d+)", str(error.value))
        assert named
        largest = int(named.group(1))
        assert a_deployment(num_gpu_blocks_override=100, max_model_len=largest).ledger().max_model_len == largest
        with pytest.raises(ScenarioError):
            a_deployment(num_gpu_blocks_override=100, max_model_len=largest + 1).ledger()

    def test_longer_than_the_models_is_refused(self) -> None:
        with pytest.raises(ScenarioError, match="131072"):
            a_deployment(max_model_len=131073).ledger()

    def test_without_chunked_prefill_a_longer_context_leaves_less(self) -> None:
        short, long = (
            a_deployment(enable_chunked_prefill=False, max_model_len=length, max_num_seqs=64).ledger()
            for length in (20000, 100000)
        )
        assert short.num_gpu_blocks > long.num_gpu_blocks


class TestFit:
    def test_the_error_names_the_smallest_size_that_fits(self) -> None:
        with pytest.raises(ScenarioError, match=r"GiB more than") as error:
            a_deployment("llama-3.1-70b").ledger()
        named = re.search(r"tensor_parallel_size = (\d+) would fit", str(error.value))
        assert named
        size = int(named.group(1))
        assert a_deployment("llama-3.1-70b", tensor_parallel_size=size).ledger().num_gpu_blocks > 1
        with pytest.raises(ScenarioError):
            a_deployment("llama-3.1-70b", tensor_parallel_size=size // 2).ledger()

    def test_beyond_a_node_it_names_the_accelerators(self) -> None:
        with pytest.raises(ScenarioError, match="16 accelerators"):
            a_deployment("llama-3.1-405b").ledger()
        assert a_deployment("llama-3.1-405b", tensor_parallel_size=8, pipeline_parallel_size=2).ledger().kv_tokens

    def test_without_room_for_overheads_nothing_would_fit(self) -> None:
        with pytest.raises(ScenarioError, match="no number"):
            a_deployment(kv_overhead_bytes=1000 * GIB).ledger()

    @pytest.mark.parametrize("size", [3, 64])
    def test_a_size_that_does_not_divide_the_heads_names_those_that_do(self, size: int) -> None:
        with pytest.raises(ScenarioError, match=r"32 attention heads.*allowed: 1, 2, 4, 8, 16, 32"):
            a_deployment(tensor_parallel_size=size).ledger()

    def test_more_stages_than_layers_are_refused(self) -> None:
        with pytest.raises(ScenarioError, match="32 layers"):
            a_deployment(pipeline_parallel_size=33).ledger()

    def test_a_bad_value_is_refused_when_it_is_given(self) -> None:
        with pytest.raises(ValueError, match="gpu_memory_utilization"):
            a_deployment(gpu_memory_utilization=1.5)


class TestOtherEngines:
    def test_sglang_keeps_a_share_of_what_is_free_at_start(self) -> None:
        deployment = a_deployment(engine="sglang", block_size=1, mem_fraction_static=0.8)
        ledger = deployment.ledger()
        free = ledger.total_bytes - ledger.non_torch_bytes
        assert ledger.kv_pool_bytes == pytest.approx(0.8 * free - ledger.weights_bytes)

    @pytest.mark.parametrize(
        ("accelerator", "reserved_mib"),
        [("h100-sxm", 512 + 1.5 * 8192 + 512 + 128), ("l40s", 512 + 1.5 * 4096 + 64 + 128)],
    )
    def test_sglang_reserves_for_chunks_graphs_and_ranks(self, accelerator: str, reserved_mib: float) -> None:
        deployment = a_deployment(accelerator=accelerator, engine="sglang")
        kept = deployment.accelerator.memory_bytes - reserved_mib * 2**20
        assert static_fraction(deployment) == pytest.approx(kept / deployment.accelerator.memory_bytes)

    def test_sglang_holds_what_its_server_logged(self, shared_data: Path) -> None:
        """Row 34: a 235B of experts in fp8 on four H100, mem-fraction-static 0.93. The weights are 55 of 79 GiB, so
        that 1 % of them is 3 % of the pool."""
        row = pd.read_csv(shared_data / "kv_capacity.csv", index_col="id").loc[34]
        server = a_deployment(
            "qwen3-235b-a22b",
            quantization="fp8",
            tensor_parallel_size=4,
            engine="sglang",
            block_size=1,
            mem_fraction_static=0.93,
        )
        assert server.ledger().block_bytes == row.kv_bytes_per_token_per_gpu
        assert server.ledger().kv_tokens == pytest.approx(row.reported_kv_tokens, rel=0.1)

    def test_tensorrt_llm_takes_its_share_of_what_is_left(self) -> None:
        deployment = a_deployment(engine="tensorrt-llm", block_size=32, free_gpu_memory_fraction=0.5)
        half, whole = deployment.ledger(), replace(deployment, free_gpu_memory_fraction=1.0).ledger()
        assert 2 * half.kv_pool_bytes == pytest.approx(whole.kv_pool_bytes)
        parts = whole.weights_bytes + whole.activation_bytes + whole.non_torch_bytes + whole.cuda_graph_bytes
        assert parts + whole.kv_pool_bytes == pytest.approx(whole.total_bytes)


class TestDraftHead:
    def test_a_head_of_one_layer_holds_kv_like_the_models_own(self) -> None:
        """EAGLE on Llama-3.1-8B: 132 KiB a token instead of 128 (vllm#19996)."""
        assert a_deployment(draft_layers=1).ledger().block_bytes == 16 * 132 * 1024

    def test_its_weights_are_a_layer_and_the_projection_of_two_states_to_one(self) -> None:
        with_head, without = (a_deployment(draft_layers=count).ledger().weights_bytes for count in (1, 0))
        layer = 4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336
        assert with_head - without == 2 * (layer + 2 * 4096 * 4096)


class TestWindows:
    @pytest.mark.parametrize(
        ("model", "settings", "groups"),
        [
            ("gemma-3-27b", {}, (10, 1, 6)),
            ("gpt-oss-20b", {}, (12, 1, 1)),
            ("gpt-oss-20b", {"draft_layers": 1}, (13, 1, 1)),
            ("llama-4-scout", {}, (12, 1, 3)),
            ("llama-3.1-8b", {}, (32, 1, 0)),
            ("mistral-7b-v0.1", {}, (32, 0, 1)),
            ("gpt-oss-20b", {"engine_version": "0.8"}, (24, 1, 0)),
            ("gemma-3-27b", {"engine": "sglang"}, (1, 10, 52)),
        ],
    )
    def test_layers_are_grouped_as_vllm_does(
        self, model: str, settings: dict[str, Any], groups: tuple[int, ...]
    ) -> None:
        """The examples of vLLM's documentation of its hybrid KV cache manager, and the comments of its code: Gemma 3's
        last two windowed layers take a group with eight that are padding."""
        deployment = a_deployment(model, "h200-sxm", **settings)
        assert kv_groups(deployment, stages(deployment)[0]) == groups

    def test_a_long_request_takes_what_its_windows_still_see(self) -> None:
        """gpt-oss-20b at 131,072 tokens: 8,192 blocks of the full group, and of the windowed one those of the window
        less one and an iteration's 2,048 tokens, 136, and one that straddles."""
        deployment = a_deployment(a_windowed_model(), max_num_batched_tokens=2048)
        found = deployment.ledger()
        assert found.max_concurrency == pytest.approx(found.num_gpu_blocks / (8192 + 137))
        assert found.kv_tokens == int(found.max_concurrency * 131072)

    def test_the_longest_request_is_one_whose_windows_leave_blocks_behind(self) -> None:
        """A pool of 1,001 blocks, one of them the null block, and 2,048 tokens an iteration: gpt-oss takes up to 137 in
        the windowed group, so that 863 positions of 16 tokens are left for the full one."""
        limits: dict[str, Any] = {"max_num_batched_tokens": 2048, "num_gpu_blocks_override": 1001}
        assert a_deployment(a_windowed_model(), **limits).ledger().max_model_len == 863 * 16
        with pytest.raises(ScenarioError, match="at most 13808"):
            a_deployment(a_windowed_model(), **limits, max_model_len=863 * 16 + 1).ledger()

    def test_padding_layers_take_memory(self) -> None:
        """Gemma-3-27B: seven groups of ten layers for 62, of 16 KV heads of 128 in 16 bit."""
        assert a_deployment("gemma-3-27b").ledger().block_bytes == 10 * 16 * 2 * 16 * 128 * 2

    @pytest.mark.parametrize("engine", ["vllm", "sglang"])
    @given(tokens=st.integers(1, 131072), budget=st.integers(1, 16384))
    @settings(max_examples=25, deadline=None)
    def test_windows_never_hold_fewer_requests(self, engine: Any, tokens: int, budget: int) -> None:
        deployment = a_deployment(a_windowed_model(), engine=engine, max_num_batched_tokens=budget, block_size=16)
        groups = kv_groups(deployment, stages(deployment)[0])
        full = -(-tokens // 16) * (groups.full + groups.window)
        assert 1 <= groups.blocks_per_request(deployment, tokens) <= full


class TestLinearAttention:
    @pytest.mark.parametrize(
        ("model", "settings", "block", "padding"),
        [
            ("qwen3-next-80b-a3b", {}, 544, 0.0149),
            ("a small one", {"num_key_heads": 16, "num_value_heads": 16}, 544, 0.0264),
            ("a dense one", {"num_key_heads": 16, "num_value_heads": 48, "kv_heads": 4}, 784, None),
        ],
    )
    def test_the_state_is_as_large_as_vllm_logs(
        self, model: str, settings: dict[str, int], block: int, padding: float | None
    ) -> None:
        """vLLM logs the attention block it takes so that its bytes hold a state, in steps of 16 tokens, and by how much
        the state is padded: of Qwen3-Next-80B-A3B, Qwen3.5-0.8B and Qwen3.6-27B (the two with a float32 state)."""
        spec = load_model("qwen3-next-80b-a3b")
        if settings:
            heads = {key: value for key, value in settings.items() if key != "kv_heads"}
            linear = replace(spec.linear_attention, state_dtype="float32", **heads)  # type: ignore[type-var]
            spec = replace(spec, linear_attention=linear, num_key_value_heads=settings.get("kv_heads", 2))
        deployment = a_deployment(spec)
        token, state = kv_bytes_per_token(deployment), state_bytes(deployment)
        tokens = 16 * -(-state // (16 * token))
        assert tokens == block
        if padding is not None:
            assert tokens * token / state - 1 == pytest.approx(padding, abs=5e-5)

    def test_only_the_other_layers_keep_keys_and_values(self) -> None:
        """Qwen3-Next: 12 of 48, with 2 KV heads of 256."""
        deployment = a_deployment("qwen3-next-80b-a3b", tensor_parallel_size=2)
        assert fullest_rank(deployment).block_bytes == 16 * 12 * 2 * 1 * 256 * 2

    def test_every_sequence_that_may_run_has_its_state_set_aside(self) -> None:
        sizes = {"tensor_parallel_size": 4, "max_num_batched_tokens": 2048}
        few, many = (a_deployment("qwen3-next-80b-a3b", max_num_seqs=count, **sizes) for count in (64, 128))
        assert many.ledger().state_bytes - few.ledger().state_bytes == 64 * 36 * state_bytes(few)
        for deployment in (few, many):
            found = deployment.ledger()
            spent = found.weights_bytes + found.activation_bytes + found.non_torch_bytes + found.cuda_graph_bytes
            assert found.kv_pool_bytes == pytest.approx(found.requested_bytes - spent - found.state_bytes)

    def test_its_heads_must_divide_too(self) -> None:
        with pytest.raises(ScenarioError, match="tensor_parallel_size = 3 does not divide"):
            a_deployment("qwen3-next-80b-a3b", tensor_parallel_size=3).ledger()


def test_each_remedy_alone_makes_it_fit() -> None:
    found = remedies(a_deployment("llama-3.1-70b", "l40s"))
    assert len(found) == 3
    for remedy in found:
        key, _, value = remedy.removesuffix(" would fit").partition(" = ")
        given = {"accelerator": load_accelerator(value)} if key == "accelerator" else {key: value}
        changed = replace(
            a_deployment("llama-3.1-70b", "l40s"), **{k: int(v) if "size" in k else v for k, v in given.items()}
        )
        assert changed.ledger().kv_tokens > 0


def a_qwen(layers: int, hidden: int, heads: int, kv_heads: int, width: int, **given: Any) -> ModelSpec:
    """A dense Qwen, by the numbers of its config.json."""
    return ModelSpec(
        name="qwen",
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=128,
        intermediate_size=width,
        max_position_embeddings=131072,
        **{"vocab_size": 151936, "attention_bias": True, **given},
    )


def logged_servers() -> dict[int, Deployment]:
    """The servers of ``kv_capacity.csv``, by id, with what each row and its notes state of their settings.

    Memory in GiB is the log's where it prints it (RTX 3090, and a 24 GB card in row 15), otherwise what CUDA
    reports.
    """

    def gpu(name: str, gib: float) -> Any:
        return replace(load_accelerator("l40s"), name=name, memory_bytes=gib * GIB)

    h100 = load_accelerator("h100-sxm")
    small = {"max_num_batched_tokens": 2048, "max_num_seqs": 128}
    return {
        6: Deployment(
            model=load_model("llama-3.1-8b"),
            accelerator=gpu("rtx-3090", 23.58),
            max_num_batched_tokens=29000,
            engine_version="0.6",
        ),
        7: Deployment(
            model=a_qwen(48, 5120, 40, 8, 13824, vocab_size=152064),
            accelerator=load_accelerator("rtx-4090"),
            tensor_parallel_size=2,
            engine_version="0.7",
        ),
        19: Deployment(
            model=load_model("llama-3.1-8b"),
            accelerator=gpu("a100-40gb", 39.49),
            max_num_batched_tokens=8192,
            enforce_eager=True,
            engine_version="0.15",
        ),
        21: Deployment(
            model=load_model("llama-2-70b"),
            accelerator=h100,
            tensor_parallel_size=4,
            engine_version="0.15",
            **small,
        ),
        22: Deployment(
            model=load_model("mixtral-8x7b"),
            accelerator=h100,
            tensor_parallel_size=2,
            engine_version="0.15",
            **small,
        ),
        31: Deployment(
            model=a_qwen(40, 5120, 40, 8, 17408, attention_bias=False, qk_norm=True),
            accelerator=h100,
            max_num_batched_tokens=2048,
            engine_version="0.10",
        ),
        37: Deployment(
            model=a_qwen(28, 1536, 12, 2, 8960, tie_word_embeddings=True),
            accelerator=gpu("t4", 14.58),
            engine_version="0.29",
        ),
        38: Deployment(
            model=load_model("qwen2.5-7b"),
            accelerator=gpu("24 GB", 23.55),
            quantization="int4",
            engine_version="0.28",
        ),
    }


def test_pools_agree_with_what_servers_logged(shared_data: Path) -> None:
    """Every row of quality A of a text model on vLLM 0.6 or later, whose pool was made of GPU memory."""
    rows = pd.read_csv(shared_data / "kv_capacity.csv", index_col="id")
    version = rows.engine_version.str.extract(r"(\d+)\.(\d+)", expand=True).astype(float)
    recent = (rows.engine == "vllm") & ~((version[0] == 0) & (version[1] < 6))
    text = ~rows.model.str.contains("-VL-")
    chosen = rows[(rows.quality == "A") & recent & text & ~rows.gpu.str.startswith("CPU")]
    servers = logged_servers()
    assert set(servers) == set(chosen.index)
    errors = {}
    for row_id, row in chosen.iterrows():
        server = replace(servers[row_id], gpu_memory_utilization=float(row.gpu_memory_utilization))
        ledger = server.ledger()
        assert ledger.block_bytes / 16 == row.kv_bytes_per_token_per_gpu
        errors[row_id] = ledger.kv_tokens / row.reported_kv_tokens - 1
        print(f"row {row_id} {row.model} on {row.gpu}, vLLM {row.engine_version}: {errors[row_id]:+.1%}")
    sizes = np.abs(list(errors.values()))
    print(f"median {np.median(sizes):.1%}, largest {sizes.max():.1%}")
    assert np.median(sizes) <= 0.02
    assert sizes.max() <= 0.10


def test_pools_of_partly_known_servers_agree_too(shared_data: Path) -> None:
    """Rows of quality B on vLLM 0.15, whose number of sequences is not stated: 256 is assumed."""
    rows = pd.read_csv(shared_data / "kv_capacity.csv", index_col="id")
    settings: dict[str, Any] = {
        "accelerator": load_accelerator("h100-sxm"),
        "gpu_memory_utilization": 0.9,
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 256,
        "engine_version": "0.15",
    }
    servers = {
        24: Deployment(model=load_model("llama-3.1-70b"), tensor_parallel_size=4, **settings),
        27: Deployment(model=load_model("qwen2.5-7b"), **settings),
    }
    for row_id, server in servers.items():
        assert server.ledger().kv_tokens == pytest.approx(rows.loc[row_id, "reported_kv_tokens"], rel=0.02)
