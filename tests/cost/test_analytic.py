"""The analytic cost: its two forms, the bounds of the chip, what bounds prefill and decode, and measured
kernels."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmsim.cost import AnalyticCost, Batch, CostModel
from llmsim.cost.analytic import AnalyticModel
from llmsim.cost.host import Host
from llmsim.hardware import load_accelerator
from tests.cost.factories import (
    a_decode,
    a_deployment,
    a_latent_model,
    a_prefill,
    a_windowed_model,
    account_of,
    scaled,
    stacked,
    together,
)
from tools.fit_efficiency import fit_accelerator, pooled_experts
from tools.kernel_steps import ACCELERATORS, errors, read_steps

DEPLOYMENTS = {
    "dense": a_deployment(),
    "quantized": a_deployment("llama-3.1-8b", "l40s", quantization="int4", kv_cache_dtype="fp8"),
    "tensor parallel": a_deployment("llama-3.1-70b", tensor_parallel_size=8, quantization="fp8"),
    "pipeline": a_deployment("llama-3.1-70b", "a100-sxm-80gb", tensor_parallel_size=2, pipeline_parallel_size=3),
    "experts": a_deployment("mixtral-8x7b", tensor_parallel_size=4, enable_expert_parallel=True),
    "experts of all ranks": a_deployment("qwen3-30b-a3b", data_parallel_size=8, enable_expert_parallel=True),
    "windowed": a_deployment(a_windowed_model(), pipeline_parallel_size=5),
    "latent": a_deployment(a_latent_model(), "h200-sxm", tensor_parallel_size=8),
    "latent in 16 bit": a_deployment("deepseek-v2-lite", "a100-sxm-80gb"),
    "linear": a_deployment("qwen3-next-80b-a3b", tensor_parallel_size=4),
    "across nodes": a_deployment("llama-3.1-405b", tensor_parallel_size=16, pipeline_parallel_size=2),
}
BOTH = pytest.mark.parametrize("ideal", [False, True], ids=["full", "ideal"])
EACH = pytest.mark.parametrize("name", DEPLOYMENTS)


@cache
def started(name: str, ideal: bool = False) -> CostModel:
    return AnalyticCost(ideal=ideal).start(DEPLOYMENTS[name])


def window_of(name: str) -> int | None:
    return DEPLOYMENTS[name].model.sliding_window


def duration(account: Any) -> Any:
    return account.compute_s + account.hbm_s + account.link_s + account.overhead_s


@st.composite
def batches(draw: st.DrawFn, window: int | None) -> Batch:
    """Any batch a scheduler could plan."""
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        prefix = draw(st.integers(0, 20000))
        parts.append(a_prefill(draw(st.integers(1, 4096)), prefix=prefix, window=window))
    if not parts or draw(st.booleans()):
        parts.append(a_decode(draw(st.integers(1, 1024)), draw(st.integers(1, 20000)), window=window))
    batch = together(*parts)
    return batch._replace(sampled=draw(st.integers(0, batch.sampled)))


class TestForms:
    @BOTH
    @EACH
    @given(data=st.data())
    @settings(max_examples=15, deadline=None)
    def test_the_account_is_the_duration(self, name: str, ideal: bool, data: st.DataObject) -> None:
        cost = started(name, ideal)
        drawn = data.draw(st.lists(batches(window_of(name)), min_size=1, max_size=3))
        steps = [cost.step(batch).occupancy_s for batch in drawn]
        assert duration(cost.account(stacked(*drawn))) == pytest.approx(steps, rel=1e-9)

    @BOTH
    @EACH
    def test_nothing_scheduled_takes_no_time(self, name: str, ideal: bool) -> None:
        cost, empty = started(name, ideal), Batch(*[0] * 10)
        assert cost.step(empty) == (0.0, 0.0)
        assert duration(account_of(cost, empty)) == 0.0

    def test_an_iteration_leaves_a_pipeline_later_than_the_next_may_start(self) -> None:
        alone, staged = (
            AnalyticCost().start(a_deployment(pipeline_parallel_size=size)).step(a_prefill(4096)) for size in (1, 4)
        )
        assert alone.occupancy_s == alone.latency_s
        assert staged.latency_s == pytest.approx(alone.latency_s, rel=0.05)
        assert staged.occupancy_s == pytest.approx(staged.latency_s / 4, rel=0.1)


class TestBounds:
    @BOTH
    @EACH
    @given(data=st.data())
    @settings(max_examples=25, deadline=None)
    def test_no_step_beats_the_chip(self, name: str, ideal: bool, data: st.DataObject) -> None:
        deployment = DEPLOYMENTS[name]
        factors = data.draw(st.fixed_dictionaries({key: st.floats(0.05, 20) for key in ("flop_per_s", "hbm", "link")}))
        deployment = scaled(deployment, **factors)
        cost = AnalyticCost(ideal=ideal).start(deployment)
        batch = data.draw(batches(window_of(name)))
        account, seconds = account_of(cost, batch), cost.step(batch).occupancy_s * (1 + 1e-9)
        widest = max(deployment.accelerator.scale_up.bandwidth_bytes_per_s, 50e9)
        assert account.flop > 0
        assert account.flop / deployment.peak_flop_per_s <= seconds
        assert account.hbm_bytes / deployment.accelerator.hbm_bandwidth_bytes_per_s <= seconds
        assert account.link_bytes / widest <= seconds

    @EACH
    @given(data=st.data())
    @settings(max_examples=25, deadline=None)
    def test_the_ideal_is_never_slower(self, name: str, data: st.DataObject) -> None:
        batch = data.draw(batches(window_of(name)))
        full, ideal = (started(name, ideal).step(batch) for ideal in (False, True))
        assert ideal.occupancy_s <= full.occupancy_s
        assert ideal.latency_s <= full.latency_s

    @BOTH
    @EACH
    @pytest.mark.parametrize("part", ["flop_per_s", "hbm", "link"])
    @given(data=st.data())
    @settings(max_examples=10, deadline=None)
    def test_a_faster_part_never_slows_a_step(self, name: str, ideal: bool, part: str, data: st.DataObject) -> None:
        batch, factor = data.draw(batches(window_of(name))), data.draw(st.floats(1, 10))
        fast = AnalyticCost(ideal=ideal).start(scaled(DEPLOYMENTS[name], **{part: factor}))
        slow = started(name, ideal)
        assert fast.step(batch).occupancy_s <= slow.step(batch).occupancy_s * (1 + 1e-12)

    @EACH
    @given(data=st.data())
    @settings(max_examples=15, deadline=None)
    def test_more_work_never_takes_less(self, name: str, data: st.DataObject) -> None:
        """Where rows are read whole, the longest are known by the mean only, which short ones lower: there more of the
        same never takes less."""
        window = window_of(name)
        batch = data.draw(batches(window))
        rows_read_whole = DEPLOYMENTS[name].accelerator.efficiency.decode_attention_blocks
        more = batch if rows_read_whole else data.draw(batches(window))
        cost = started(name)
        assert cost.step(together(batch, more)).occupancy_s >= cost.step(batch).occupancy_s * (1 - 1e-12)


class TestWhatBounds:
    """Llama-3.1-8B, on an H100 where nothing else is said."""

    def test_a_prompt_is_bound_by_compute(self) -> None:
        account = account_of(started("dense"), a_prefill(4096))
        assert account.compute_s / duration(account) >= 0.80

    def test_a_lone_decode_is_bound_by_memory(self) -> None:
        account = account_of(started("dense"), a_decode(1, 1000))
        assert account.hbm_s / duration(account) >= 0.65

    def test_eight_pcie_cards_spend_their_time_on_exchanges(self) -> None:
        """531 of 544 ms in the kernels of a 1,024-token prompt on eight L40S (aiconfigurator-core, vLLM
        0.24)."""
        deployment = a_deployment(accelerator="l40s", tensor_parallel_size=8)
        account = account_of(AnalyticCost().start(deployment), a_prefill(1024))
        assert account.link_s / duration(account) == pytest.approx(531 / 544, abs=0.02)

    def test_a_ring_over_hbm_would_be_far_too_fast(self) -> None:
        """Bytes between accelerators go over the link, not at the rate of HBM."""
        deployment = a_deployment("llama-3.1-70b", tensor_parallel_size=4)
        account = account_of(AnalyticCost().start(deployment), a_prefill(4096))
        assert account.link_bytes / account.link_s <= deployment.accelerator.scale_up.bandwidth_bytes_per_s

    def test_ideal_prefill_goes_with_flop_and_decode_with_bandwidth(self) -> None:
        def ratio(batch: Batch, **factors: float) -> float:
            slow = AnalyticCost(ideal=True).start(scaled(DEPLOYMENTS["dense"], **factors))
            return slow.step(batch).occupancy_s / started("dense", True).step(batch).occupancy_s

        for tokens in (1024, 2048, 8192, 32768):
            assert ratio(a_prefill(tokens), flop_per_s=0.5) == pytest.approx(2.0, abs=0.005)
            assert ratio(a_prefill(tokens), hbm=0.5) == pytest.approx(1.0, abs=0.005)
        for sequences in (1, 16, 64):
            assert ratio(a_decode(sequences, 1000), hbm=0.5) == pytest.approx(2.0, abs=0.005)
            assert ratio(a_decode(sequences, 1000), flop_per_s=0.5) == pytest.approx(1.0, abs=0.005)

    def test_full_ratios_rise_with_the_work(self) -> None:
        def ratio(batch: Batch, **factors: float) -> float:
            slow = AnalyticCost().start(scaled(DEPLOYMENTS["dense"], **factors))
            return slow.step(batch).occupancy_s / started("dense").step(batch).occupancy_s

        prefill = [ratio(a_prefill(tokens), flop_per_s=0.5) for tokens in (1024, 2048, 8192, 32768)]
        decode = [ratio(a_decode(sequences, 1000), hbm=0.5) for sequences in (1, 16, 64)]
        print("prefill at half the FLOP/s", prefill, "decode at half the bandwidth", decode)
        assert prefill == sorted(prefill)
        assert decode == sorted(decode)
        assert all(1 < each < 2 for each in prefill + decode)
        assert prefill[1] >= 1.8
        assert prefill[3] >= 1.93
        assert decode[0] >= 1.65


def test_steps_agree_with_sums_of_measured_kernels(shared_data: Path) -> None:
    """vLLM's kernels on the catalogue's accelerators, host time left out: medians over systems of each one's median. Of
    models left out of the fit, ``tools/fit_efficiency.py`` prints them."""
    rows = read_steps(shared_data / "kernel_step_times.csv")
    rows = rows[rows.system.isin(list(ACCELERATORS))]
    found = [errors(chosen, load_accelerator(ACCELERATORS[str(name)])) for name, chosen in rows.groupby("system")]
    sizes = pd.concat(found).abs().groupby([rows.kind, rows.phase, rows.system]).median()
    medians = sizes.groupby(level=["kind", "phase"]).median()
    print(medians.map("{:.1%}".format).to_string())
    assert (medians["dense"] <= 0.05).all()
    assert (medians["moe"] <= 0.10).all()


def test_a_model_left_out_of_the_fit_is_met_too(shared_data: Path) -> None:
    """Dense models on an H100, each with efficiencies fitted on all others."""
    rows = read_steps(shared_data / "kernel_step_times.csv")
    rows = rows[rows.system == "h100_sxm"]
    accelerator = load_accelerator("h100-sxm")
    experts = pooled_experts(rows[rows.moe_quant == "bfloat16"], {"h100_sxm": accelerator})
    found = []
    for model in rows[rows.kind == "dense"].model.unique():
        fitted = fit_accelerator(rows[rows.model != model], accelerator, experts)
        found.append(errors(rows[rows.model == model], replace(accelerator, efficiency=fitted)))
    assert pd.concat(found).abs().median() <= 0.05


class TestHost:
    """What the host adds, and what CUDA graphs pad."""

    def test_without_graphs_a_step_takes_at_least_its_launches(self) -> None:
        """A 70B on eight H100: 28 to 31 ms, a decode floor of engines without graphs."""
        eager = replace(a_deployment("llama-3.1-70b", tensor_parallel_size=8), enforce_eager=True)
        step = AnalyticCost().start(eager).step(a_decode(1, 1000)).occupancy_s
        assert 28e-3 <= step <= 31e-3
        long = a_prefill(8192)
        graphs = AnalyticCost().start(replace(eager, enforce_eager=False)).step(long).occupancy_s
        assert AnalyticCost().start(eager).step(long).occupancy_s == pytest.approx(graphs)

    def test_without_graphs_short_contexts_hide_behind_the_launches(self) -> None:
        cost = AnalyticCost().start(a_deployment(enforce_eager=True))
        shortest, short, long = (cost.step(a_decode(64, context)).occupancy_s for context in (1, 300, 100_000))
        assert shortest == short < long

    def test_a_batch_is_padded_to_the_next_graph(self) -> None:
        cost = started("dense")
        times = [cost.step(a_decode(8, 1)._replace(decode_sequences=count, sampled=8)).occupancy_s for count in (9, 16)]
        assert times[0] == pytest.approx(times[1], rel=1e-3)
        assert Host.of(DEPLOYMENTS["dense"]).padded(np.array([0, 1, 3, 9, 257, 513])).tolist() == [
            0,
            1,
            4,
            16,
            272,
            513,
        ]

    def test_padding_is_no_work(self) -> None:
        three, four = (account_of(started("dense"), a_decode(count, 1)).flop for count in (3, 4))
        assert three / 3 == pytest.approx(four / 4)

    def test_synchronous_scheduling_adds_host_time(self) -> None:
        """Llama-3.1-8B on an H100, alone: 7.2 ms a token on the public load curve of vLLM in 2025."""
        waiting = AnalyticCost().start(a_deployment(async_scheduling=False)).step(a_decode(1, 231)).occupancy_s
        assert waiting == pytest.approx(7.2e-3, rel=0.02)


class TestVerification:
    """Speculative decoding (Leviathan et al., arXiv 2211.17192): several tokens a sequence in one iteration."""

    @EACH
    @pytest.mark.parametrize(("sequences", "context"), [(1, 100), (37, 3000), (600, 9000)])
    def test_of_one_token_it_is_a_decode_step(self, name: str, sequences: int, context: int) -> None:
        cost = AnalyticModel(DEPLOYMENTS[name])
        step = cost.step(a_decode(sequences, context, window=window_of(name))).occupancy_s
        assert cost.verify(sequences, 1, context) == pytest.approx(step, rel=1e-9)

    @EACH
    @given(sequences=st.integers(1, 300), tokens=st.integers(2, 8), context=st.integers(8, 50000))
    @settings(max_examples=15, deadline=None)
    def test_it_takes_longer_than_a_step_but_not_than_one_for_each(
        self, name: str, sequences: int, tokens: int, context: int
    ) -> None:
        cost = AnalyticModel(DEPLOYMENTS[name])
        step = cost.step(a_decode(sequences, context, window=window_of(name))).occupancy_s
        assert step * (1 - 1e-9) <= cost.verify(sequences, tokens, context) < tokens * step

    def test_a_dense_model_verifies_nearly_for_nothing(self) -> None:
        """Weights, keys and values are read once: eight sequences of an 8B, at short and at long context."""
        cost = AnalyticModel(DEPLOYMENTS["dense"])
        for context in (1000, 100_000):
            assert cost.verify(8, 5, context) < 1.15 * cost.step(a_decode(8, context)).occupancy_s

    def test_drafts_of_a_mixture_visit_experts_of_their_own(self) -> None:
        """Mixtral, alone: a token reads 2 experts of 8 in each layer, four tokens 8 * (1 - 0.75**4) = 5.5."""
        cost = AnalyticModel(a_deployment("mixtral-8x7b", "h200-sxm"))
        more_s = cost.verify(1, 4, 1000) - cost.step(a_decode(1, 1000)).occupancy_s
        read_s = 32 * (8 * (1 - 0.75**4) - 2) * 3 * 4096 * 14336 * 2 / 4.8e12
        assert read_s < more_s < 1.6 * read_s
