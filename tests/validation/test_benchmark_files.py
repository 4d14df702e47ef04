"""Result files of benchmark tools as measured values."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmsim.cli import main
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator
from llmsim.validation.benchmark_files import read_benchmark
from llmsim.validation.tables import read_table
from tests.validation.factories import MEASURED, a_file

USERS, SLOWER_MS = (1, 4, 16), (10.6, 10.9, 11.8)
TTFT_MS = 45.0


def a_result(users: int, tpot_ms: float, **changes: Any) -> dict[str, Any]:
    """A line of ``vllm bench serve --save-result --append-result``: requests of the lengths of ``MEASURED``."""
    prompt, output = int(MEASURED["input_tokens"]), int(MEASURED["output_tokens"])
    requests = 4 * users
    answer_s = (TTFT_MS + (output - 1) * tpot_ms) / 1e3
    return {
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": requests,
        "request_rate": "inf",
        "max_concurrency": users,
        "completed": requests,
        "duration": requests / users * answer_s,
        "request_throughput": users / answer_s,
        "output_throughput": users * output / answer_s,
        "total_input_tokens": requests * prompt,
        "total_output_tokens": requests * output,
        "mean_ttft_ms": TTFT_MS,
        "mean_tpot_ms": tpot_ms,
    } | changes


def a_result_file(folder: Path, *results: dict[str, Any]) -> Path:
    """The lines as a file."""
    path = folder / "bench.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in results))
    return path


def test_a_result_is_the_facts_of_a_table_that_says_the_same(tmp_path: Path) -> None:
    pairs = list(zip(USERS, SLOWER_MS, strict=True))
    rows = [
        MEASURED | {"engine_version": "", "concurrency": users, "n_requests": 4 * users, "value": value}
        for users, value in pairs
    ]
    table = read_table(a_file(tmp_path / "bench.csv", rows)).facts
    facts = read_benchmark(a_result_file(tmp_path, *(a_result(*pair) for pair in pairs)), "h100-sxm").facts
    found = [fact for fact in facts if fact.metric == "tpot_mean"]
    assert [(f.metric, pytest.approx(f.value), f.model, f.hardware, f.case) for f in found] == [
        (f.metric, f.value, f.model, f.hardware, f.case) for f in table
    ]


def test_a_result_file_calibrates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results as a server has them whose host takes 4 ms longer an iteration."""
    catalogue = load_accelerator("h100-sxm")
    slower = catalogue.efficiency.host_iteration_s + 4e-3
    server = replace(catalogue, efficiency=replace(catalogue.efficiency, host_iteration_s=slower))
    asked = read_benchmark(a_result_file(tmp_path, *(a_result(users, 10.0) for users in USERS)), "h100-sxm").facts
    measured = [case.predict(server).values for case in dict.fromkeys(fact.case for fact in asked)]
    results = [
        a_result(users, 1e3 * each["tpot_mean"], mean_ttft_ms=1e3 * each["ttft_mean"])
        | {"output_throughput": each["output_throughput_mean"]}
        for users, each in zip(USERS, measured, strict=True)
    ]
    out = tmp_path / "mine.toml"
    assert (
        main(["calibrate", str(a_result_file(tmp_path, *results)), "--accelerator", "h100-sxm", "--out", str(out)]) == 0
    )
    assert "host time of an iteration" in capsys.readouterr().out
    assert load_accelerator(str(out)).efficiency.host_iteration_s == pytest.approx(slower, rel=0.3)


def test_what_a_run_does_not_tell_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"run 1: .* does not tell the model; write a table"):
        read_benchmark(a_result_file(tmp_path, a_result(1, 10.0, model_id="")), "h100-sxm")
    with pytest.raises(ScenarioError, match="does not tell prompt_tokens, output_tokens"):
        read_benchmark(a_result_file(tmp_path, a_result(1, 10.0, completed=0)), "h100-sxm")
