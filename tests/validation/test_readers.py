"""Results of each benchmark tool come in llmsim's definitions, and what does not add up is said."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmsim.errors import ScenarioError
from llmsim.validation.measured import Measured, checked
from llmsim.validation.readers import read_measured

VLLM: dict[str, Any] = {
    "model_id": "m",
    "num_prompts": 2,
    "request_rate": "inf",
    "max_concurrency": 1,
    "duration": 0.25,
    "completed": 2,
    "total_input_tokens": 200,
    "total_output_tokens": 20,
    "request_throughput": 8.0,
    "output_throughput": 80.0,
    "total_token_throughput": 880.0,
    "mean_ttft_ms": 30.0,
    "median_ttft_ms": 30.0,
    "p99_ttft_ms": 31.0,
    "mean_tpot_ms": 10.0,
    "mean_itl_ms": 10.0,
    "mean_e2el_ms": 120.0,
}
DETAILS: dict[str, Any] = {
    "input_lens": [100, 100, 100],
    "output_lens": [10, 10, 0],
    "ttfts": [0.03, 0.03, 0.0],
    "itls": [[0.01] * 8 + [0.4], [0.01] * 9, []],
    "latencies": [0.51, 0.12, 0.0],
    "start_times": [5.0, 5.12, 5.2],
    "errors": ["", "", "timeout"],
}
BLOCK = """
============ Serving Benchmark Result ============
Successful requests:                     100
Failed requests:                         3
Maximum request concurrency:             16
Benchmark duration (s):                  50.00
Total input tokens:                      20000
Total generated tokens:                  10100
Request throughput (req/s):              2.00
Output token throughput (tok/s):         202.00
Peak output token throughput (tok/s):    400.00
Total Token throughput (tok/s):          602.00
---------------Time to First Token----------------
Mean TTFT (ms):                          50.00
Median TTFT (ms):                        45.00
P99 TTFT (ms):                           90.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          20.00
Median TPOT (ms):                        19.00
P99 TPOT (ms):                           30.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           20.10
Median ITL (ms):                         18.00
P99 ITL (ms):                            60.00
----------------End-to-end Latency----------------
Mean E2EL (ms):                          2050.00
==================================================
"""


def statistic(**values: float) -> dict[str, Any]:
    return {"successful": {**values, "percentiles": {"p001": 1.0, "p01": 2.0, "p99": 99.0}}}


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 2},
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "config": {"strategy": {"type_": "constant", "rate": 4.0}},
            "scheduler_metrics": {
                "measure_start_time": 100.0,
                "measure_end_time": 160.0,
                "requests_made": {"successful": 240, "errored": 2},
            },
            "metrics": {
                "requests_per_second": statistic(mean=4.0),
                "request_latency": statistic(mean=0.39),
                "prompt_token_count": statistic(mean=16.0),
                "output_token_count": statistic(mean=10.0, std_dev=0.0),
                "time_to_first_token_ms": statistic(mean=300.0, median=290.0),
                "time_per_output_token_ms": statistic(mean=39.0),
                "inter_token_latency_ms": statistic(mean=10.0),
            },
        }
    ],
}
AGGREGATE: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 2.0},
    "request_latency": {"unit": "ms", "avg": 1025.0, "p50": 1000.0, "p99": 2000.0},
    "time_to_first_token": {"unit": "ms", "avg": 35.0, "p99": 80.0},
    "inter_token_latency": {"unit": "ms", "avg": 10.0},
    "output_sequence_length": {"unit": "tokens", "avg": 100.0},
    "request_count": {"unit": "requests", "avg": 50.0},
    "input_config": {"endpoint": {"model_names": ["m"]}},
}
RAW = [
    {
        "metadata": {"request_start_ns": 10**9 * second, "request_end_ns": 10**9 * second + 201_000_000},
        "metrics": {
            "input_sequence_length": {"value": 550, "unit": "tokens"},
            "time_to_first_token": {"value": 30.0, "unit": "ms"},
            "request_latency": {"value": 201.0, "unit": "ms"},
            "output_sequence_length": {"value": 20, "unit": "tokens"},
            "inter_chunk_latency": {"value": [9.0] * 19, "unit": "ms"},
        },
        "error": "refused" if second == 2 else None,
    }
    for second in (1, 2, 3)
]
STAGE: dict[str, Any] = {
    "load_summary": {"count": 600, "send_duration": 60.0, "requested_rate": 20.0, "achieved_rate": 15.0},
    "successes": {
        "count": 590,
        "latency": {
            "request_latency": {"mean": 0.48048, "p99": 0.489, "median": 0.48},
            "time_to_first_token": {"mean": 0.03113, "p99": 0.0397},
            "time_per_output_token": {"mean": 0.003473, "p99": 0.004},
            "inter_token_latency": {"mean": 0.0035, "p99.9": 0.01},
            "normalized_time_per_output_token": {"mean": 0.0076},
        },
        "throughput": {"requests_per_sec": 9.8, "output_tokens_per_sec": 600.0, "total_tokens_per_sec": 2600.0},
        "prompt_len": {"mean": 204.0},
        "output_len": {"mean": 63.15, "min": 61.0, "max": 65.0},
    },
    "failures": {"count": 10},
}
TOKENS = [
    {
        "start_time": 100.0 + each,
        "end_time": 100.5 + each,
        "info": {"input_tokens": 5, "output_tokens": 6, "output_token_times": [100.1 + each, 100.3 + each]},
        "error": None,
    }
    for each in range(3)
]
LLMPERF: dict[str, Any] = {
    "model": "m",
    "num_concurrent_requests": 8,
    "results_ttft_s_mean": 0.3,
    "results_ttft_s_quantiles_p99": 0.5,
    "results_ttft_s_stddev": 0.1,
    "results_inter_token_latency_s_mean": 0.039,
    "results_end_to_end_latency_s_mean": 0.39,
    "results_number_output_tokens_mean": 10.0,
    "results_number_output_tokens_min": 10,
    "results_number_output_tokens_max": 10,
    "results_num_completed_requests": 80,
    "results_num_completed_requests_per_min": 120.0,
    "results_number_errors": 1,
}
RESPONSES = [
    {
        "ttft_s": 0.3,
        "end_to_end_latency_s": 0.39,
        "inter_token_latency_s": 0.039,
        "number_input_tokens": 16,
        "number_output_tokens": 10,
        "error_code": code,
    }
    for code in (None, None, 503)
]
HF: dict[str, Any] = {
    "config": {"model_name": "m"},
    "results": [
        {
            "id": "constant@4",
            "executor_type": "ConstantArrivalRate",
            "config": {"max_vus": 128, "rate": 4.0},
            "successful_requests": 90,
            "failed_requests": 1,
            "request_rate": 3.9,
            "token_throughput_secs": 400.0,
            "time_to_first_token_ms": {"p50": 40.0, "p99": 90.0, "avg": 45.0},
            "inter_token_latency_ms": {"avg": 11.0},
            "e2e_latency_ms": {"avg": 1134.0},
        },
        {"executor_type": "ConstantVUs", "config": {"max_vus": 16}, "successful_requests": 5},
    ],
}


def read(tmp_path: Path, data: Any, name: str = "auto") -> list[Measured]:
    """Write a result to a file and read it."""
    path = tmp_path / "result.file"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return read_measured(path, name)


def mean(measured: Measured, metric: str) -> float:
    return measured.statistics[metric]["mean"]


class TestVllmBench:
    def test_scalars_are_in_seconds(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, VLLM)
        assert (run.tool, run.model, run.max_concurrency, run.request_rate_per_s) == ("vllm-bench", "m", 1, None)
        assert run.statistics["ttft_s"] == {"mean": 0.03, "p50": 0.03, "p99": 0.031}
        assert (mean(run, "tpot_s"), mean(run, "output_tokens")) == (0.01, 10)
        assert run.totals["output_tokens_per_s"] == 80
        assert run.flags == ()

    def test_details_are_seconds_already_and_failures_are_left_out(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, VLLM | DETAILS)
        assert run.requests is not None
        assert run.requests["arrival_s"] == pytest.approx([0, 0.12])
        assert run.requests["e2e_s"].tolist() == [0.51, 0.12]
        # The pooled gaps see the stall of 400 ms; of the two requests' means one is 53 ms.
        assert run.statistics["itl_s"]["max"] == 0.4
        assert run.statistics["tpot_s"]["max"] == pytest.approx(0.48 / 9)

    def test_older_results_without_starts_and_total_names_are_read(self, tmp_path: Path) -> None:
        older = {key: value for key, value in (VLLM | DETAILS).items() if key not in ("start_times", "latencies")}
        older["total_input"] = older.pop("total_input_tokens")
        (run,) = read(tmp_path, older)
        assert run.totals["prompt_tokens"] == 200
        assert run.requests is not None
        assert np.isnan(run.requests["arrival_s"]).all()
        assert run.requests["e2e_s"] == pytest.approx([0.03 + 0.48, 0.12])

    def test_appended_lines_are_runs(self, tmp_path: Path) -> None:
        text = json.dumps(VLLM) + "\n" + json.dumps({**VLLM, "request_rate": 4.0}) + "\n"
        assert [run.request_rate_per_s for run in read(tmp_path, text)] == [None, 4.0]

    def test_the_printed_block_is_read_from_any_text(self, tmp_path: Path) -> None:
        runs = read(tmp_path, "I ran this and got\n" + BLOCK + "\nand then\n" + BLOCK.replace("20.00", "21.00"))
        assert [mean(run, "tpot_s") for run in runs] == [0.02, 0.021]
        run = runs[0]
        assert run.max_concurrency == 16
        assert run.totals["failed"] == 3
        assert run.totals["total_tokens_per_s"] == 602
        assert mean(run, "output_tokens") == 101
        assert run.statistics["itl_s"] == pytest.approx({"mean": 0.0201, "p50": 0.018, "p99": 0.06})
        assert run.flags == ()


class TestGuidellm:
    def test_time_per_output_token_counts_the_first(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, GUIDELLM)
        assert mean(run, "tpot_s") == pytest.approx(0.01)
        assert mean(run, "normalized_latency_s") == pytest.approx(0.039)
        assert (run.request_rate_per_s, run.totals["completed"], run.totals["duration_s"]) == (4.0, 240, 60.0)
        assert run.flags == (
            "guidellm's time_per_output_token counts the first token; its inter_token_latency is taken as TPOT",
        )

    def test_percentiles_of_one_digit_more(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, GUIDELLM)
        ttft = run.statistics["ttft_s"]
        assert (ttft["p0.1"], ttft["p1"], ttft["p50"], ttft["p99"]) == pytest.approx((0.001, 0.002, 0.29, 0.099))


class TestAiperf:
    def test_aggregates_are_in_their_units(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, AGGREGATE)
        assert run.statistics["e2e_s"] == pytest.approx({"mean": 1.025, "p50": 1.0, "p99": 2.0})
        assert (mean(run, "tpot_s"), run.totals["requests_per_s"], run.model) == (0.01, 2.0, "m")

    def test_requests_one_by_one(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, "".join(json.dumps(record) + "\n" for record in RAW))
        assert run.requests is not None
        assert run.requests["arrival_s"].tolist() == [0, 2]
        assert mean(run, "tpot_s") == pytest.approx((0.201 - 0.03) / 19)
        assert mean(run, "itl_s") == pytest.approx(0.009)
        assert run.totals["failed"] == 1
        assert "1 requests failed" in run.flags[0]


class TestInferencePerf:
    def test_a_tpot_of_half_the_true_one_is_flagged_and_computed_anew(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, STAGE)
        assert run.statistics["tpot_s"] == {"mean": pytest.approx((0.48048 - 0.03113) / 62.15)}
        assert "TPOT is given as 3.47 ms, 0.48 times (E2E - TTFT) / (n - 1) = 7.23 ms, which is taken" in run.flags

    def test_a_client_that_holds_back_is_flagged(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, STAGE)
        assert run.request_rate_per_s == 20
        assert "asked for 20 requests/s, sent 15: the client held requests back" in run.flags

    def test_requests_one_by_one(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, [*TOKENS, {**TOKENS[0], "error": "x"}])
        assert mean(run, "ttft_s") == pytest.approx(0.1)
        assert mean(run, "tpot_s") == pytest.approx(0.4 / 5)
        assert run.totals == {"completed": 3, "failed": 1}


class TestLlmperf:
    def test_inter_token_latency_counts_the_first_token(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, LLMPERF)
        assert mean(run, "normalized_latency_s") == 0.039
        assert mean(run, "tpot_s") == pytest.approx(0.01)
        assert run.statistics["ttft_s"] == {"mean": 0.3, "p99": 0.5, "std": 0.1}
        assert (run.max_concurrency, run.totals["requests_per_s"], run.totals["failed"]) == (8, 2.0, 1)

    def test_responses_one_by_one(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, RESPONSES)
        assert mean(run, "tpot_s") == pytest.approx(0.01)
        assert run.totals == {"completed": 2, "failed": 1}


def test_hugging_faces_benchmarker(tmp_path: Path) -> None:
    rate, users = read(tmp_path, HF)
    assert (rate.request_rate_per_s, rate.max_concurrency) == (4.0, None)
    assert (users.request_rate_per_s, users.max_concurrency) == (None, 16)
    assert rate.statistics["ttft_s"] == pytest.approx({"p50": 0.04, "p99": 0.09, "mean": 0.045})
    assert mean(rate, "tpot_s") == 0.011


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "result.file: is empty"),
        ("hello", "not the result of a known benchmark; known: vllm-bench, guidellm.* It begins: hello"),
        ({"a": 1}, 'It begins: {"a": 1}'),
        ("[1,\n", "line 1: is not JSON"),
        ("{}\n{oops\n", "line 2: is not JSON"),
        ("Serving Benchmark Result\nnothing", "not a result of vllm-bench: the block has no figures"),
        ({**VLLM, "itls": 5}, "not a result of vllm-bench"),
        ({"load_summary": {}, "successes": 5}, "not a result of inference-perf"),
    ],
)
def test_what_is_no_result_is_named(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read(tmp_path, data)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"absent.json: cannot be read: No such file"):
        read_measured(tmp_path / "absent.json")


def test_statistics_that_add_up_are_left_alone() -> None:
    statistics = {
        "ttft_s": {"mean": 0.1},
        "tpot_s": {"mean": 0.0101, "p99": 0.02},
        "e2e_s": {"mean": 1.1},
        "output_tokens": {"mean": 101.0, "std": 0.0},
    }
    run = Measured(tool="t", label="l", statistics=statistics)
    assert checked(run) == run
    wrong = checked(Measured(tool="t", label="l", statistics={**statistics, "tpot_s": {"mean": 0.0104, "p99": 0.02}}))
    assert wrong.statistics["tpot_s"] == {"mean": pytest.approx(0.01)}
    assert len(wrong.flags) == 1


def test_the_published_load_curve_is_mended_in_every_row(shared_data: Path) -> None:
    with (shared_data / "load_curve_llama31_8b_h100.csv").open() as file:
        rows = [{name: value for name, value in row.items() if name != "cfg"} for row in csv.DictReader(file)]
    assert len(rows) == 42
    for row in rows:
        number = {name: float(value) for name, value in row.items()}
        statistics = {
            "ttft_s": {"mean": number["ttft"]},
            "tpot_s": {"mean": number["tpot"]},
            "e2e_s": {"mean": number["e2e"]},
            "output_tokens": {"mean": number["osl"]},
        }
        run = checked(Measured(tool="inference-perf", label=row["stage"], statistics=statistics))
        assert run.statistics["tpot_s"]["mean"] == pytest.approx(number["tpot_calc"], rel=1e-6)
        assert len(run.flags) == 1
