"""The commands of studies as their user meets them: the answer on standard output, pages on request, faults told."""

import json
from pathlib import Path

import pytest

from llmsim import load_scenario
from llmsim.cli import main
from llmsim.study.replications import replicate
from tests.test_cli import FILE, Output

FAST = ["--jobs", "1"]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """A scenario of 250 requests, of which none is late."""
    path = tmp_path / "small.toml"
    path.write_text(FILE.replace("requests = 20", "requests = 250"))
    return str(path)


def told(capsys: Output) -> dict[str, object]:
    """What is on standard output, as strict JSON."""
    found: dict[str, object] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    return found


def test_run_with_replications_gives_intervals(scenario: str, capsys: Output) -> None:
    assert main(["run", scenario, "--replications", "2", "--json", *FAST]) == 0
    table = told(capsys)["table"]
    expected = replicate(load_scenario(scenario), 2).frame()
    assert table == json.loads(expected.to_json(orient="records", double_precision=15))
    assert main(["run", scenario, "--replications", "2", "--out", "x", *FAST]) == 2


def test_sweep_writes_its_table_and_a_page(scenario: str, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "out"
    grid = ["--grid", "workload.rate_per_s=4,8", "--grid", "pools.replicas=1,2", "--out", str(out)]
    assert main(["sweep", scenario, *grid, "--metric", "e2e_s.p50", *FAST]) == 0
    assert "e2e_s.p50" in capsys.readouterr().out
    assert len((out / "sweep.csv").read_text().splitlines()) == 5
    assert "heatmap" in (out / "sweep.html").read_text()
    assert main(["sweep", scenario, "--grid", "workload.rat=1", *FAST]) == 2
    assert "workload.rat" in capsys.readouterr().err


def test_capacity_compare_and_why_answer_and_draw(scenario: str, tmp_path: Path, capsys: Output) -> None:
    page = tmp_path / "page.html"
    more = ["--report", str(page), *FAST]
    assert main(["capacity", scenario, "--replications", "2", *more]) == 0
    assert "Capacity: " in capsys.readouterr().out
    assert "Latency over load" in page.read_text()
    faster = ["--set-b", "pools.tensor_parallel_size=2", "--pairs", "3", "--false-alarms"]
    few = ["--set", "workload.requests=60"]
    assert main(["compare", scenario, scenario, *few, *faster, *more]) == 0
    answers = capsys.readouterr().out
    assert "B is better: " in answers
    assert "A against A" in answers
    assert "pools.tensor_parallel_size=2" in answers, "two sides of one scenario are told apart"
    assert "…" not in answers, "the table fits a terminal of 80 columns"
    assert main(["why", scenario, "--metric", "e2e", "--what-if", "--pairs", "2", *few, *more]) == 0
    assert "E2E p99 is about" in capsys.readouterr().out
    assert "What would help" in page.read_text()


def test_plan_answers_and_draws(scenario: str, tmp_path: Path, capsys: Output) -> None:
    page = tmp_path / "plan.html"
    choices = ["--accelerators", "h100-sxm,l4", "--tensor-parallel-sizes", "1", "--report", str(page)]
    assert main(["plan", scenario, "--rate", "100", *choices, *FAST]) == 0
    printed = capsys.readouterr().out
    assert "Cheapest: " in printed
    assert "Why the others lost" in printed
    assert "Assumptions" in page.read_text()
    assert main(["plan", scenario, *FAST]) == 2
    assert "either --rate or --daily-users" in capsys.readouterr().err


def test_vllm_goes_both_ways(tmp_path: Path, capsys: Output) -> None:
    assert main(["vllm", "vllm serve llama-3.1-8b --max-num-seqs 64 --enable-lora"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "Warning: not simulated: --enable-lora\n"
    path = tmp_path / "served.toml"
    path.write_text(printed.out)
    assert main(["vllm", str(path)]) == 0
    assert capsys.readouterr().out.endswith("--max-num-seqs 64\n")
