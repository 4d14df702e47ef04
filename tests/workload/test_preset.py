"""The preset workload is like the trace whose statistics it is drawn from."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from llmsim.catalog import entry, names
from llmsim.errors import ScenarioError
from llmsim.workload import PresetWorkload, RequestTable, TraceWorkload


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
