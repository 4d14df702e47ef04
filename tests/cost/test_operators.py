"""Work of the operators: FLOPs and bytes against closed forms and conservation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from llmsim import catalog
from llmsim.cost import AnalyticCost
from llmsim.cost.collectives import all_gather, all_reduce
from llmsim.cost.layers import attention_operators, experts_touched, stage_operators
from llmsim.cost.operators import Operator
from llmsim.deployment import Deployment, layout
from llmsim.model import ModelSpec, load_model
from tests.cost.factories import (
    a_decode,
    a_deployment,
    a_latent_model,
    a_prefill,
    a_windowed_model,
    account_of,
    together,
)


def flop(deployment: Deployment, batch: Any) -> float:
    return account_of(AnalyticCost().start(deployment), batch).flop


def least_bytes(deployment: Deployment, batch: Any) -> float:
    """Weights, keys and values only."""
    return account_of(AnalyticCost(ideal=True).start(deployment), batch).hbm_bytes


class TestFlop:
    @pytest.mark.parametrize("name", catalog.names("models"))
    def test_a_token_costs_two_a_parameter_it_uses(self, name: str) -> None:
        """Kaplan et al., "Scaling laws for neural language models", section 2.1: 2 FLOPs a parameter a
        token."""
        model = load_model(name)
        embeddings = model.embedding_parameters * (1 if model.tie_word_embeddings else 2)
        embeddings += model.learned_positions * model.hidden_size
        used = model.active_parameters - embeddings - model.norm_parameters
        batch = a_decode(1, 1)._replace(sampled=0)
        width = 2 * model.mla.kv_lora_rank + model.mla.qk_rope_head_dim if model.mla else 2 * model.head_dim
        attention = 2 * model.num_attention_heads * width * model.attention_layers
        if model.linear_attention:  # a matrix a head, read twice and updated
            linear = model.linear_attention
            attention += linear.layers * linear.num_value_heads * 6 * linear.key_head_dim * linear.value_head_dim
        bias = model.attention_bias * (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
        expected = 2 * (used - model.attention_layers * bias) + attention
        assert flop(a_deployment(model), batch) == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize(
        ("tokens", "expected"), [(500, 7.05e12), (15000, 2.68e14), (30000, 6.55e14), (100000, 4.02e15)]
    )
    def test_a_prompt_of_an_8b(self, tokens: int, expected: float) -> None:
        """2*N*S + 2*L*d*S**2, N = 6.98e9."""
        assert flop(a_deployment(), a_prefill(tokens)) == pytest.approx(expected, rel=0.005)

    def test_chunks_attend_as_often_as_a_whole_prompt(self) -> None:
        whole = a_prefill(4096)
        chunks = [a_prefill(1024, prefix=start) for start in range(0, 4096, 1024)]
        deployment = a_deployment()
        head = 2 * 128256 * 4096
        assert sum(flop(deployment, chunk) for chunk in chunks) - 3 * head == pytest.approx(flop(deployment, whole))

    @pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b"])
    @pytest.mark.parametrize("size", [2, 4, 8])
    def test_tensor_parallel_ranks_share_it(self, name: str, size: int) -> None:
        batch = together(a_prefill(1000), a_decode(10, 1000))
        shared = flop(a_deployment(name, tensor_parallel_size=size), batch)
        assert shared * size == pytest.approx(flop(a_deployment(name), batch), rel=1e-3)

    def test_stages_share_it(self) -> None:
        batch = together(a_prefill(1000), a_decode(10, 1000))
        staged = flop(a_deployment(pipeline_parallel_size=4), batch)
        assert staged * 4 == pytest.approx(flop(a_deployment(), batch))

    def test_data_parallel_ranks_bring_tokens_to_the_experts_of_each(self) -> None:
        """With the load even, a rank of expert parallelism does as much as one that has all experts to
        itself."""
        alone = a_deployment("mixtral-8x7b")
        even = replace(alone.accelerator.efficiency, moe_imbalance_per_log2_ep=0.0)
        alone = replace(alone, accelerator=replace(alone.accelerator, efficiency=even))
        spread = replace(alone, data_parallel_size=8, enable_expert_parallel=True)
        assert flop(spread, a_prefill(512)) == pytest.approx(flop(alone, a_prefill(512)))


class TestBytes:
    def test_a_decode_step_of_an_8b_reads_15_gb(self) -> None:
        """(6.98e9 + 0.525e9) parameters of 2 bytes, and 128 KiB a token of context."""
        assert least_bytes(a_deployment(), a_decode(1, 1)) == pytest.approx(15.0e9, rel=0.002)
        context = least_bytes(a_deployment(), a_decode(8, 4096)) - least_bytes(a_deployment(), a_decode(8, 1))
        assert context == pytest.approx(8 * 4095 * 128 * 1024)

    @pytest.mark.parametrize(("tokens", "experts"), [(1, 2), (10**6, 8)])
    def test_one_token_reads_its_experts_and_many_read_all(self, tokens: int, experts: int) -> None:
        assert experts_touched(a_deployment("mixtral-8x7b"), tokens) == pytest.approx(experts)

    def test_distinct_experts_are_those_of_a_draw(self) -> None:
        generator = np.random.default_rng(0)
        draws = [
            np.unique(np.concatenate([generator.permutation(128)[:8] for _ in range(16)])).size for _ in range(400)
        ]
        assert experts_touched(a_deployment("qwen3-30b-a3b"), 16) == pytest.approx(np.mean(draws), rel=0.01)

    @pytest.mark.parametrize(("quantization", "share"), [("fp8", 0.5), ("int4", 0.26), ("nvfp4", 0.2813)])
    def test_quantized_weights_are_read_as_stored(self, quantization: Any, share: float) -> None:
        full, small = (least_bytes(a_deployment(quantization=q), a_decode(1, 1)) for q in (None, quantization))
        head = 2 * 128256 * 4096
        assert (small - head) / (full - head) == pytest.approx(share, rel=0.001)

    def test_windowed_layers_read_no_more_than_their_window(self) -> None:
        deployment = a_deployment(a_windowed_model())
        near, far = (least_bytes(deployment, a_decode(1, length, window=128)) for length in (1128, 2128))
        assert far - near == pytest.approx(1000 * 12 * 2 * 8 * 64 * 2)


class TestLinearAttention:
    def test_the_state_is_read_and_written_once_a_sequence_whatever_its_length(self) -> None:
        """MiniMax-Text-01: 70 layers of 64 heads with a matrix of 128 x 128 in 16 bit; 10 with keys and values of 8
        heads."""
        model = replace(load_model("minimax-text-01"), moe=None)
        deployment = a_deployment(model, "h200-sxm")
        one, two, longer = (least_bytes(deployment, a_decode(*each)) for each in ((1, 1), (2, 1), (1, 1001)))
        kv = 10 * 2 * 8 * 128 * 2
        assert two - one == pytest.approx(2 * 70 * 64 * 128 * 128 * 2 + kv)
        assert longer - one == pytest.approx(1000 * kv)

    def test_a_prompt_costs_what_its_length_says(self) -> None:
        """Only the 12 other layers of Qwen3-Next attend to pairs: a chunk after a long prefix costs little more."""
        deployment = a_deployment("qwen3-next-80b-a3b", tensor_parallel_size=4)
        batch, later = a_prefill(1000), a_prefill(1000, prefix=30000)
        pairs = later.prefill_pairs - batch.prefill_pairs
        assert flop(deployment, later) - flop(deployment, batch) == pytest.approx(pairs * 12 * 4 * 4 * 256)


class TestLatentAttention:
    def test_decode_does_242_flop_a_byte_of_context(self) -> None:
        """DeepSeek-V3 in bf16: 2*128*(576 + 512) FLOPs on 1,152 bytes."""
        deployment = a_deployment(a_latent_model(), "h200-sxm", tensor_parallel_size=1, num_gpu_blocks_override=100)
        near, far = (a_decode(1, length) for length in (1000, 2000))
        work = flop(deployment, far) - flop(deployment, near)
        read = least_bytes(deployment, far) - least_bytes(deployment, near)
        assert work / read == pytest.approx(242, rel=0.005)

    def test_a_prompt_costs_what_its_active_parameters_say(self) -> None:
        """37 billion active parameters (arXiv 2412.19437, abstract), the embedding and head left out."""
        short = a_prefill(2)._replace(sampled=0)
        embeddings = 2 * 129280 * 7168
        per_token = flop(a_deployment(a_latent_model(), "h200-sxm"), short) / 2
        assert per_token == pytest.approx(2 * (37.5e9 - embeddings), rel=0.02)


class TestCollectives:
    def test_a_ring_sends_each_byte_twice_less_its_own_part(self) -> None:
        reduce = all_reduce(a_deployment(accelerator="a100-sxm-80gb"), "r", 1, 1000, 4)
        assert (reduce.one_shot_bytes, reduce.ring_bytes) == (3000, 1500)

    @pytest.mark.parametrize(("ranks", "sent"), [(2, 1000), (4, 1250), (8, 1125)])
    def test_an_adding_switch_spares_a_pass(self, ranks: int, sent: float) -> None:
        assert all_reduce(a_deployment(), "r", 1, 1000, ranks).ring_bytes == sent

    def test_ranks_on_pcie_share_the_link(self) -> None:
        deployment = a_deployment(accelerator="l40s")
        two, eight = (all_gather(deployment, "g", 1, "tokens", 1000, ranks) for ranks in (2, 8))
        exponent = deployment.accelerator.efficiency.link_contention_exponent
        assert two.ring_bytes_per_s / eight.ring_bytes_per_s == pytest.approx(4**exponent)
        assert exponent > 0

    def test_two_all_reduces_a_layer_and_one_for_the_embedding(self) -> None:
        deployment = a_deployment(tensor_parallel_size=2)
        operators = stage_operators(deployment, layout.stages(deployment)[0]).on_tokens
        assert [each.count for each in operators if each.name == "all_reduce"] == [65]

    def test_parallel_attention_and_mlp_are_added_up_at_once(self) -> None:
        deployment = a_deployment("falcon-40b", tensor_parallel_size=8)
        operators = stage_operators(deployment, layout.stages(deployment)[0]).on_tokens
        assert [each.count for each in operators if each.name == "all_reduce"] == [61]

    def test_rings_between_nodes_use_the_links_of_all_accelerators_of_a_node(self) -> None:
        deployment = a_deployment("llama-3.1-405b", tensor_parallel_size=16)
        across = all_reduce(deployment, "r", 1, 1000, 16)
        ring = deployment.accelerator.efficiency.ring_link
        assert across.ring_bytes_per_s == pytest.approx(min(450e9, 8 * 50e9) * ring)
        assert across.one_shot_bytes_per_s <= 50e9

    def test_a_mesh_does_not_add_in_a_switch(self) -> None:
        assert all_reduce(a_deployment(accelerator="mi300x"), "r", 1, 1000, 8).ring_bytes == 1750

    def test_experts_of_other_ranks_are_reached_over_the_link(self) -> None:
        deployment = a_deployment("mixtral-8x7b", data_parallel_size=8, enable_expert_parallel=True)
        batch = a_decode(4, 100)
        sent = account_of(AnalyticCost().start(deployment), batch).link_bytes
        assert sent == pytest.approx(2 * 32 * 7 / 8 * 8 * 4 * 4096 * 2)

    def test_more_accelerators_than_a_node_has_use_the_link_between_nodes(self) -> None:
        inside, across = (a_deployment(tensor_parallel_size=size).link(size) for size in (8, 16))
        assert inside.bandwidth_bytes_per_s > across.bandwidth_bytes_per_s


class TestKernels:
    def test_eight_bit_products_make_their_inputs_on_the_way(self) -> None:
        """Of each token 3 bytes an input, 16 bit read and 8 written; an 8B has inputs of 3 x 4096 and 14336."""
        operators = {each.name: each for each in on_tokens(a_deployment(quantization="fp8"))}
        assert operators["quantize"].row_bytes == 3 * 32 * (3 * 4096 + 14336)
        assert "quantize" not in {each.name for each in on_tokens(a_deployment(quantization="int4"))}

    def test_more_rows_than_a_tile_are_computed_in_whole_tiles(self) -> None:
        operator = replace(PRODUCT, tile_rows=128)
        times = operator.account({"tokens": np.array([100, 128, 129, 200, 256])}).compute_s
        assert times[0] < times[1] < times[2] == times[3] == times[4]

    def test_work_beyond_the_first_thousands_goes_at_the_sustained_rate(self) -> None:
        operator = replace(PRODUCT, sustained=0.5)
        short, long = operator.account({"tokens": np.array([4096, 8192])}).compute_s
        assert long == pytest.approx(3 * short)

    def test_time_that_is_no_work_is_not_counted_as_flop(self) -> None:
        plain, busy = (
            each.account({"tokens": np.array([1000])})
            for each in (PRODUCT, replace(PRODUCT, tile_flop=1e9, padding_flop=1e9))
        )
        assert busy.compute_s == pytest.approx(3 * plain.compute_s)
        assert busy.flop == plain.flop


PRODUCT = Operator(name="p", count=1, rows="tokens", flop=1e9, flop_per_s=1e15, bytes_per_s=1e15, launch_s=0.0)


def on_tokens(deployment: Deployment) -> list[Any]:
    return stage_operators(deployment, layout.stages(deployment)[0]).on_tokens


def test_products_of_a_layer_by_hand() -> None:
    """Llama-3.1-8B: qkv 4096 x 6144, o 4096 x 4096, gate and up 4096 x 28672, down 14336 x 4096."""
    deployment = a_deployment()
    operators = {each.name: each for each in stage_operators(deployment, layout.stages(deployment)[0]).on_tokens}
    shapes = {"qkv": 4096 * 6144, "o": 4096 * 4096, "up": 4096 * 28672, "down": 14336 * 4096}
    for name, parameters in shapes.items():
        operator = operators[name]
        assert (operator.count, operator.flop, operator.fixed_bytes) == (32, 2 * parameters, 2 * parameters)


@pytest.mark.parametrize(("model", "small_kernels"), [(load_model("llama-3.1-8b"), 4), (load_model("qwen3-8b"), 8)])
def test_prefill_attention_launches_rope_and_kv_writes_too(model: ModelSpec, small_kernels: int) -> None:
    deployment = a_deployment(model)
    efficiency = deployment.accelerator.efficiency
    ((_, operators),) = attention_operators(deployment, layout.stages(deployment)[0])
    (attention,) = operators.prefill
    assert attention.launch_s == pytest.approx(
        efficiency.prefill_attention_launch_s + small_kernels * efficiency.elementwise_launch_s
    )
