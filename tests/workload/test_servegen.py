"""Requests drawn from ServeGen's clients arrive and are as long as its windows say."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.workload import RequestTable, ServeGenWorkload

HEADER = "client,window_start_s,rate_per_s,cv,pattern,shape,scale\n"
LENGTHS = "client,window_start_s,field,q0000,q0500,q1000\n"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Two clients: one for 20 minutes, its lengths changing after 10, and one in the second window only."""
    path = tmp_path / "m_arrivals.csv"
    path.write_text(HEADER + "0,0,2.0,2.0,Gamma,0.25,9\n0,600,6.0,1.0,Weibull,1.0,9\n7,600,1.0,1.0,Gamma,1.0,9\n")
    (tmp_path / "m_lengths.csv").write_text(
        LENGTHS
        + "0,0,input_tokens,10,20,30\n0,600,input_tokens,100,200,300\n0,0,output_tokens,1,2,3\n"
        + "7,0,input_tokens,5,5,5\n7,0,output_tokens,4,4,4\n7,0,reason_ratio,0,0.5,1\n"
    )
    return path


@pytest.fixture
def chunks(tmp_path: Path) -> Path:
    """A folder as ServeGen publishes it, with a window of rate 0 and a client without lengths."""
    folder = tmp_path / "chunks"
    folder.mkdir()
    (folder / "chunk-3-trace.csv").write_text("0,5.0,1.0,Gamma,1.0,0.2\n600,0,0,,0,0\n1200,5.0,1.0,Gamma,1.0,0.2\n")
    window = {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{7: 1.0}"}
    (folder / "chunk-3-dataset.json").write_text(json.dumps({"0": window}))
    (folder / "chunk-4-trace.csv").write_text("0,5.0,1.0,Gamma,1.0,0.2\n")
    return folder


def generate(path: Path, **fields: Any) -> RequestTable:
    return ServeGenWorkload(path=path, **fields).generate(0)


def test_rates_and_lengths_are_those_of_the_windows(pair: Path) -> None:
    tables = [ServeGenWorkload(path=pair).generate(seed) for seed in range(20)]
    counts = np.zeros((20, 2, 2))
    for table, count in zip(tables, counts, strict=True):
        assert table.client_names == ("client-0", "client-7")
        late = table.arrival_ns >= 600 * 10**9
        for client in (0, 1):
            count[client] = [np.sum((table.client == client) & (late == second)) for second in (False, True)]
        mine = table.client == 0
        assert table.prompt_tokens[mine & ~late].min() >= 10
        assert table.prompt_tokens[mine & ~late].max() <= 30
        assert table.prompt_tokens[mine & late].min() >= 100
        assert set(table.prompt_tokens[~mine]) == {5}
    # A gamma renewal count of cv 2 has about 4 times the variance of a Poisson count.
    mean = counts.mean(axis=0)
    assert mean[0, 0] == pytest.approx(1_200, abs=5 * np.sqrt(4 * 1_200 / 20))
    assert mean[0, 1] == pytest.approx(3_600, abs=5 * np.sqrt(3_600 / 20))
    assert mean[1].tolist() == [0, pytest.approx(600, abs=5 * np.sqrt(600 / 20))]


def test_published_chunks_are_read(chunks: Path) -> None:
    table = generate(chunks)
    assert table.client_names == ("client-3",)
    assert len(table) == pytest.approx(6_000, abs=5 * np.sqrt(6_000))
    arrival_s = table.arrival_ns / 1e9
    assert not np.any((arrival_s > 600) & (arrival_s < 1200))
    assert set(table.prompt_tokens) == {100, 300}
    assert np.mean(table.prompt_tokens == 300) == pytest.approx(0.75, abs=0.03)
    assert set(table.output_tokens) == {7}


def test_a_part_of_the_time_at_another_rate(pair: Path) -> None:
    table = generate(pair, start_s=600.0, duration_s=300.0, rate_per_s=70.0)
    assert table.arrival_ns[0] < 10**9
    assert table.arrival_ns[-1] < 300 * 10**9
    assert len(table) == pytest.approx(21_000, abs=5 * np.sqrt(21_000))
    assert len(generate(pair, requests=50)) == 50


def test_one_client_does_not_change_anothers_requests(pair: Path) -> None:
    before = generate(pair)
    text = pair.read_text()
    pair.write_text(text.replace("7,600,1.0,", "7,600,3.0,"))
    after = generate(pair)
    for name in ("arrival_ns", "prompt_tokens", "output_tokens"):
        first, second = (getattr(table, name)[table.client == 0] for table in (before, after))
        np.testing.assert_array_equal(first, second)


def test_faults_are_named(pair: Path, chunks: Path) -> None:
    lengths = pair.with_name("m_lengths.csv")
    pair.write_text(HEADER + "0,0,2.0,2.0,Poisson,0.25,9\n")
    with pytest.raises(ScenarioError, match=r"m_arrivals.csv line 2: '0,2.0,2.0,Poisson,0.25,9' is not start, rate"):
        generate(pair)
    pair.write_text("a,b\n")
    with pytest.raises(ScenarioError, match="columns are a, b; needed: client, window_start_s"):
        generate(pair)
    pair.write_text(HEADER + "0,0,2.0,2.0,Gamma,0.25,9\n")
    lengths.write_text(LENGTHS + "0,0,input_tokens,10,x,30\n")
    with pytest.raises(ScenarioError, match=r"m_lengths.csv line 2: could not convert"):
        generate(pair)
    lengths.unlink()
    with pytest.raises(ScenarioError, match=r"needs a file \*_arrivals.csv with a \*_lengths.csv beside it"):
        generate(pair)
    (chunks / "chunk-3-dataset.json").write_text('{"0": {"input_tokens": "{oops", "output_tokens": "{1: 1.0}"}}')
    with pytest.raises(ScenarioError, match=r"chunk-3-dataset.json: not a data set of ServeGen"):
        generate(chunks)
    with pytest.raises(ValueError, match="there is no such file or folder"):
        ServeGenWorkload(path=Path("absent")).located(chunks)


@pytest.mark.parametrize("model", ["m-small", "deepseek-r1"])
def test_an_hour_of_the_real_clients_has_their_rate(shared_data: Path, model: str) -> None:
    path = shared_data / "traces" / f"servegen_{model}_day0_arrivals.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["window_start_s"]) < 3600]
    expected = sum(600 * float(row["rate_per_s"]) for row in rows)
    table = generate(path, duration_s=3600.0)
    assert len(table) == pytest.approx(expected, rel=0.02)
