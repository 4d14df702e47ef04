"""The preset workload is like the trace whose statistics it is drawn from."""

from pathlib import Path
from time import process_time

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.catalog import entry, names
from llmsim.errors import ScenarioError
from llmsim.workload import PresetWorkload, RequestTable, ServeGenWorkload, TraceWorkload
from llmsim.workload.describe import Recorded, describe, prefix_hits
from llmsim.workload.readers.servegen import is_servegen


@pytest.fixture(scope="module")
def trace(shared_data: Path) -> RequestTable:
    return TraceWorkload(path=shared_data / "traces" / "azure_llm_2023_conv.csv").generate(0)


@pytest.fixture(scope="module")
def drawn() -> RequestTable:
    """Enough requests that a quantile's error is of the statistics, not of the draw."""
    return PresetWorkload(requests=400_000).generate(0)


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
def test_lengths_are_the_traces(trace: RequestTable, drawn: RequestTable, column: str) -> None:
    real, ours = getattr(trace, column), getattr(drawn, column)
    assert ours.mean() == pytest.approx(real.mean(), rel=0.01)
    for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99):
        assert np.quantile(ours, share) == pytest.approx(np.quantile(real, share), rel=0.03), share
    assert real.min() <= ours.min()
    assert ours.max() <= real.max()


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
def test_twenty_thousand_requests_could_be_the_trace(trace: RequestTable, column: str) -> None:
    from scipy.stats import ks_2samp

    ours = getattr(PresetWorkload(requests=20_000).generate(0), column)
    assert ks_2samp(ours, getattr(trace, column)).pvalue > 1e-3


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
def test_the_share_of_lengths_up_to_any_value_is_the_traces(
    trace: RequestTable, drawn: RequestTable, column: str
) -> None:
    real, ours = np.sort(getattr(trace, column)), np.sort(getattr(drawn, column))
    values = np.union1d(real, ours)
    shares = [np.searchsorted(each, values, side="right") / len(each) for each in (real, ours)]
    assert np.abs(shares[0] - shares[1]).max() < 0.01


def test_outputs_depend_on_prompts_as_in_the_trace(trace: RequestTable) -> None:
    from scipy.stats import spearmanr

    ours = PresetWorkload(requests=20_000).generate(0)
    of_trace = spearmanr(trace.prompt_tokens, trace.output_tokens).statistic
    assert spearmanr(ours.prompt_tokens, ours.output_tokens).statistic == pytest.approx(of_trace, abs=0.05)
    for low, high in ((0, 300), (300, 1_000), (1_000, 1_200), (1_200, 20_000)):
        medians = [
            np.median(table.output_tokens[(table.prompt_tokens >= low) & (table.prompt_tokens < high)])
            for table in (ours, trace)
        ]
        assert medians[0] == pytest.approx(medians[1], rel=0.1), (low, high)


def test_the_rate_follows_the_trace_from_minute_to_minute(trace: RequestTable) -> None:
    def per_minute(table: RequestTable) -> np.ndarray:
        return np.bincount(table.arrival_ns // (60 * 10**9), minlength=59)[:58]

    own = PresetWorkload().generate(0)
    assert len(own) == len(trace) == 19_366
    real, ours = per_minute(trace), per_minute(own)
    # The trace's counts are ours' expectation, but for a constant factor near 1.
    assert np.sum((ours - real) ** 2 / real) < 58 + 4 * np.sqrt(2 * 58)
    assert ours.sum() == pytest.approx(real.sum(), rel=0.03)


def test_gaps_within_five_minutes_are_nearly_as_variable_as_the_traces(trace: RequestTable) -> None:
    def mean_cv(table: RequestTable) -> float:
        window = table.arrival_ns // (300 * 10**9)
        gaps = [np.diff(table.arrival_ns[window == each]) for each in range(11)]
        return float(np.mean([gap.std() / gap.mean() for gap in gaps]))

    assert mean_cv(PresetWorkload().generate(0)) == pytest.approx(mean_cv(trace), abs=0.1)


@pytest.mark.parametrize("requests", [2_000, 20_000])
@pytest.mark.parametrize("vary_rate", [True, False])
def test_the_rate_asked_for_is_delivered_on_any_part_of_the_profile(requests: int, vary_rate: bool) -> None:
    spans = [
        PresetWorkload(rate_per_s=5.0, requests=requests, vary_rate=vary_rate).generate(seed).arrival_ns[-1] / 1e9
        for seed in range(20)
    ]
    assert requests / np.mean(spans) == pytest.approx(5, rel=4 / np.sqrt(20 * requests))


def test_a_duration_gives_all_requests_in_it() -> None:
    table = PresetWorkload(rate_per_s=8.0, duration_s=600.0).generate(0)
    assert table.arrival_ns[-1] < 600e9
    assert len(table) == pytest.approx(4_800, abs=4 * np.sqrt(4_800))


def test_a_change_of_rate_keeps_lengths_and_without_the_profile_gaps() -> None:
    slow, fast = (PresetWorkload(rate_per_s=rate, vary_rate=False, requests=500).generate(0) for rate in (1, 4))
    np.testing.assert_array_equal(slow.prompt_tokens, fast.prompt_tokens)
    np.testing.assert_array_equal(slow.output_tokens, fast.output_tokens)
    np.testing.assert_allclose(slow.arrival_ns, 4 * fast.arrival_ns, atol=4)


SOURCES = {
    "azure-code-2023": "azure_llm_2023_code.csv",
    "mooncake-conversation": "mooncake_conversation_first30min.jsonl",
    "servegen-chat": "servegen_m-large_day0_arrivals.csv",
    "reasoning": "servegen_deepseek-r1_day0_arrivals.csv",
}


@pytest.fixture(scope="module", params=SOURCES)
def of_source(request: pytest.FixtureRequest, shared_data: Path) -> tuple[RequestTable, str]:
    """The requests of a source, or drawn from its clients with another seed, and the preset's name."""
    path = shared_data / "traces" / SOURCES[request.param]
    if is_servegen(path):
        return ServeGenWorkload(path=path, rate_per_s=5.0).generate(1), request.param
    return TraceWorkload(path=path).generate(0), request.param


class TestEachSource:
    @pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
    def test_quantiles_are_the_sources(self, of_source: tuple[RequestTable, str], column: str) -> None:
        table, name = of_source
        real, ours = getattr(table, column), getattr(PresetWorkload(name=name, requests=60_000).generate(0), column)
        for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95):
            # Around a jump of the law a quantile is only known within the error of its share.
            error = 3 * np.sqrt(share * (1 - share) / min(len(real), 60_000)) + 0.002
            low, high = np.quantile(real, (max(share - error, 0), min(share + error, 1)))
            assert 0.97 * low - 1 <= np.quantile(ours, share) <= 1.03 * high + 1, share

    def test_prompts_and_outputs_correlate_as_in_the_source(self, of_source: tuple[RequestTable, str]) -> None:
        from scipy.stats import spearmanr

        table, name = of_source
        ours = PresetWorkload(name=name, requests=50_000).generate(0)
        real = spearmanr(table.prompt_tokens, table.output_tokens).statistic
        assert spearmanr(ours.prompt_tokens, ours.output_tokens).statistic == pytest.approx(real, abs=0.05)


def test_code_requests_are_as_bursty_as_the_traces(shared_data: Path) -> None:
    real = TraceWorkload(path=shared_data / "traces" / "azure_llm_2023_code.csv").generate(0)
    real_facts = describe(Recorded(real, True, [])).arrivals
    assert real_facts is not None
    drawn = [describe(Recorded(PresetWorkload(name="azure-code-2023").generate(seed), True, [])) for seed in range(5)]
    facts = [each.arrivals for each in drawn if each.arrivals is not None]
    assert np.mean([each.idc_1s for each in facts]) == pytest.approx(real_facts.idc_1s, rel=0.25)
    assert np.mean([each.gap_cv for each in facts]) == pytest.approx(real_facts.gap_cv, rel=0.25)
    assert np.mean([each.peak_second_per_s for each in facts]) == pytest.approx(real_facts.peak_second_per_s, rel=0.3)


def test_mooncakes_prompts_are_reused_as_much_and_as_late_as_in_the_trace(shared_data: Path) -> None:
    path = shared_data / "traces" / "mooncake_conversation_first30min.jsonl"
    shares, medians_s = [], []
    # Early prompts of the preset have no old ones to begin like.
    begin_ns = 600 * 10**9
    for table in (TraceWorkload(path=path).generate(0), PresetWorkload(name="mooncake-conversation").generate(0)):
        hits, sources = prefix_hits(table)
        shares.append(hits.sum() / table.prompt_tokens.sum())
        deep = hits > 512
        later = deep & (table.arrival_ns > begin_ns)
        medians_s.append(np.median((table.arrival_ns - table.arrival_ns[sources])[later]) / 1e9)
        assert np.mean(deep) == pytest.approx(0.355, abs=0.03)
    assert shares[1] == pytest.approx(shares[0], abs=0.03)
    assert medians_s[1] == pytest.approx(medians_s[0], rel=0.25)


def test_constructed_presets_take_rate_and_size() -> None:
    table = PresetWorkload(name="rag", rate_per_s=9.0, duration_s=500.0).generate(0)
    assert len(table) == pytest.approx(4_500, abs=4 * np.sqrt(4_500))
    assert np.all(table.prompt_tokens > 500)
    agents = PresetWorkload(name="agent").generate(0)
    assert len(agents) == 2_000
    assert agents.prompt_tokens.mean() == pytest.approx(8_596, rel=0.15)
    assert agents.output_tokens.mean() == pytest.approx(182, rel=0.1)
    assert set(PresetWorkload(name="batch-summarisation", requests=10).generate(0).priority) == {1}


@pytest.mark.parametrize("name", names("workloads"))
def test_every_preset_generates_and_names_its_source_and_licence(name: str) -> None:
    assert len(PresetWorkload(name=name, requests=100).generate(0)) == 100
    assert all(entry("workloads", name)[key] for key in ("description", "source", "licence"))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ScenarioError, match="azure-conversation-2023"):
        PresetWorkload(name="azure-conversation-2032").generate(0)


def test_impossible_presets_are_refused() -> None:
    with pytest.raises(ValidationError, match="rate_per_s"):
        PresetWorkload(rate_per_s=-5.0)
    with pytest.raises(ValidationError, match="either requests or duration_s"):
        PresetWorkload(requests=5, duration_s=3.0)
    with pytest.raises(ScenarioError, match="no request arrives within duration_s = 1e-09"):
        PresetWorkload(duration_s=1e-9).generate(0)


def test_two_hundred_thousand_requests_with_shared_prefixes_take_less_than_a_second() -> None:
    def cpu_s(seed: int) -> float:
        began = process_time()
        PresetWorkload(name="mooncake-conversation", requests=200_000).generate(seed)
        return process_time() - began

    assert any(cpu_s(seed) < 1.0 for seed in range(3))
