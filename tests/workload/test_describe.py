"""What is said of a trace is so."""

from pathlib import Path

import numpy as np
import pytest

from llmsim.workload import RequestTable, TraceWorkload
from llmsim.workload.describe import Recorded, describe, prefix_hits, read_recorded
from llmsim.workload.lengths import Fixed
from tests.workload.factories import a_client, a_table, prompt_of


def a_trace(arrival_s: object, **columns: object) -> RequestTable:
    return RequestTable.build(arrival_s=arrival_s, **{"prompt_tokens": 100, "output_tokens": 10, **columns})  # type: ignore[arg-type]


def agreement(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> int:
    """With how many equal tokens two prompts begin."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def test_rates_and_peaks_are_counted() -> None:
    arrival_s = np.concatenate((np.arange(0, 100, 1.0), 50.2 + np.arange(30) / 100, [100.0]))
    facts = describe(Recorded(a_trace(np.sort(arrival_s)), True, [])).arrivals
    assert facts is not None
    assert facts.span_s == 100
    assert facts.mean_rate_per_s == pytest.approx(1.30)
    assert facts.peak_second_per_s == 31
    assert facts.peak_minute_per_s == pytest.approx(90 / 60)


def test_poisson_arrivals_have_dispersions_of_one_and_regular_ones_of_none() -> None:
    from llmsim.workload.arrivals import Constant, Gamma

    def facts(**fields: object) -> object:
        return describe(Recorded(a_table(a_client(rate_per_s=10.0, **fields), requests=40_000), True, [])).arrivals

    poisson, bursty, regular = facts(), facts(arrivals=Gamma(cv=3.0)), facts(arrivals=Constant())
    assert poisson.gap_cv == pytest.approx(1, abs=0.03)  # type: ignore[attr-defined]
    assert poisson.idc_1s == pytest.approx(1, abs=0.1)  # type: ignore[attr-defined]
    assert bursty.gap_cv == pytest.approx(3, rel=0.05)  # type: ignore[attr-defined]
    assert bursty.idc_60s == pytest.approx(9, rel=0.5)  # type: ignore[attr-defined]
    assert regular.gap_cv == pytest.approx(0, abs=1e-6)  # type: ignore[attr-defined]
    assert regular.idc_1s < 0.1  # type: ignore[attr-defined]


def test_lengths_correlation_sessions_and_clients_are_told() -> None:
    table = a_table(a_client("chat", turns=Fixed(tokens=4)), a_client("api", rate_per_s=8.0), requests=4_000)
    facts = describe(Recorded(table, True, []))
    assert facts.prompt_tokens["p50"] == np.median(table.prompt_tokens)
    assert facts.prompt_tokens["max"] == table.prompt_tokens.max()
    assert facts.rank_correlation is None
    assert facts.session_requests_mean == pytest.approx(4, abs=0.05)
    assert facts.chained_share == pytest.approx(np.mean(table.after >= 0))
    assert facts.clients == {"chat": int(np.sum(table.client == 0)), "api": int(np.sum(table.client == 1))}
    assert facts.arrivals is not None
    assert facts.arrivals.requests == np.sum(table.after < 0)


def test_prefix_hits_are_those_of_a_search_over_tokens() -> None:
    client = a_client(
        turns=Fixed(tokens=3),
        prompt_tokens=Fixed(tokens=4),
        output_tokens=Fixed(tokens=2),
        shared_prefix_tokens=3,
        shared_prefixes=2,
    )
    table = a_table(client, requests=60)
    hits, sources = prefix_hits(table)
    known: list[list[tuple[int, int]]] = []
    for row in range(60):
        prompt = prompt_of(table, row)
        common = [agreement(prompt, each) for each in known]
        assert hits[row] == max(common, default=0)
        if hits[row]:
            assert sources[row] == max(at for at, length in enumerate(common) if length == hits[row])
        known.append(prompt + [(-1 - row, index) for index in range(table.output_tokens[row])])


def test_pieces_cut_differently_are_the_same_tokens() -> None:
    pieces = (np.array([0, 1, 4]), np.array([5, 5, 5, 9]), np.array([0, 0, 60, 0]), np.array([100, 60, 40, 20]))
    table = RequestTable.build(arrival_ns=[0, 1], prompt_tokens=[100, 120], output_tokens=1, segments=pieces)
    assert prefix_hits(table)[0].tolist() == [0, 100]


@pytest.mark.parametrize(
    ("table", "oddity"),
    [
        (a_trace(np.repeat(np.arange(50) * 3.0, 4)), "50 distinct times on a grid of 3 s"),
        (a_trace([0, 0.5, 0.5, 1.25]), r"2 requests \(50.0%\) share their instant with another"),
        (a_trace([0, 1, 5, 9]), "all times are whole seconds"),
        (a_trace([3, 3, 3]), "all requests arrive at one instant"),
        (a_trace([0, 0.5, 0.5, 1.25]), "1 rows repeat another's time and lengths"),
        (a_trace([0, 0.5]), "prompt_tokens are always 100"),
        (
            a_trace(np.arange(200) / 3, output_tokens=np.minimum(np.arange(1, 201), 150)),
            "25.5% of output_tokens are the longest, 150: a limit seems to have cut them",
        ),
        (a_trace([0, 0.5], prompt_tokens=[5, 2_000_000]), "more than any model takes"),
    ],
)  # fmt: skip
def test_oddities_are_told(table: RequestTable, oddity: str) -> None:
    import re

    assert any(re.search(oddity, each) for each in describe(Recorded(table, True, [])).oddities)


def test_an_ordinary_trace_has_no_oddities() -> None:
    table = a_table(a_client(output_tokens={"kind": "lognormal", "mean": 100.0, "p99": 600.0}))
    assert describe(Recorded(table, True, [])).oddities == []


def test_one_request_and_files_without_times_have_no_rate(tmp_path: Path) -> None:
    assert describe(Recorded(a_trace([5.0]), True, [])).arrivals is None
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n5,6\n7,8\n")
    recorded = read_recorded(path)
    assert not recorded.timed
    assert describe(recorded).arrivals is None
    assert describe(recorded).oddities == []


def test_what_reading_notices_is_an_oddity(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n5.5,1,2\n0,3,0\n1.25,4,5\n")
    oddities = describe(read_recorded(path)).oddities
    assert any("1 bad rows skipped, 2 kept; the first" in each for each in oddities)
    assert any("1 rows are earlier than the row before" in each for each in oddities)


def test_the_real_traces_are_as_their_readme_says(shared_data: Path) -> None:
    folder = shared_data / "traces"
    conversation = describe(read_recorded(folder / "azure_llm_2023_conv.csv"))
    assert conversation.requests == 19_366
    assert conversation.oddities == []
    mooncake = describe(read_recorded(folder / "mooncake_conversation_first30min.jsonl"))
    assert mooncake.requests == 5_719
    assert any("600 distinct times on a grid of 2.99" in each for each in mooncake.oddities)
    table = TraceWorkload(path=folder / "mooncake_conversation_first30min.jsonl").generate(0)
    row = np.repeat(np.arange(len(table)), np.diff(table.segment_offsets))
    _, first, number = np.unique(table.segment_stream, return_index=True, return_inverse=True)
    reused = table.segment_tokens[row > row[first][number]].sum()
    assert mooncake.prefix_hit_ceiling == pytest.approx(reused / table.prompt_tokens.sum(), abs=0.003)
