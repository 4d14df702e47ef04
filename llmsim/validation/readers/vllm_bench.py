"""``vllm bench serve``: the JSON of ``--save-result``, appended JSON lines, and the block it prints.

Scalars are in milliseconds, the detailed arrays in seconds. Failed requests are in the arrays with an error and
without times. SGLang's ``bench_serving`` prints the same block with a few other labels.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from llmsim.validation.measured import Measured, Statistics, statistics_of
from llmsim.validation.readers.common import filled, is_number, known, request_columns

TOOL = "vllm-bench"
TITLE = "Serving Benchmark Result"
_METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2e_s"}
_PRINTED = {"TTFT": "ttft_s", "TPOT": "tpot_s", "ITL": "itl_s", "E2EL": "e2e_s", "E2E Latency": "e2e_s"}
_TOTALS = {
    "duration": "duration_s",
    "completed": "completed",
    "failed": "failed",
    "total_input_tokens": "prompt_tokens",
    "total_input": "prompt_tokens",
    "total_output_tokens": "output_tokens",
    "total_output": "output_tokens",
    "request_throughput": "requests_per_s",
    "request_goodput": "goodput_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
}
_LABELS = {
    "successful requests": "completed",
    "failed requests": "failed",
    "benchmark duration (s)": "duration_s",
    "total input tokens": "prompt_tokens",
    "total generated tokens": "output_tokens",
    "request throughput (req/s)": "requests_per_s",
    "request goodput (req/s)": "goodput_per_s",
    "output token throughput (tok/s)": "output_tokens_per_s",
    "total token throughput (tok/s)": "total_tokens_per_s",
}


def recognises(data: Any) -> bool:
    """Whether it has the throughputs of the JSON, or the title of the block."""
    if isinstance(data, str):
        return TITLE in data
    first = data[0] if isinstance(data, list) and data else data
    return isinstance(first, dict) and "request_throughput" in first and "mean_ttft_ms" in first


def read(data: Any) -> list[Measured]:
    """A run for each JSON object or printed block."""
    if isinstance(data, str):
        return [_block(number, text) for number, text in enumerate(data.split(TITLE)[1:], start=1)]
    return [_result(number, each) for number, each in enumerate(data if isinstance(data, list) else [data], start=1)]


def _result(number: int, result: Mapping[str, Any]) -> Measured:
    rate, limit = result.get("request_rate"), result.get("max_concurrency")
    totals = known({_TOTALS[key]: result[key] for key in _TOTALS if key in result})
    metrics = {name: _of_metric(result, key) for key, name in _METRICS.items()}
    if gaps := [gap for each in result.get("itls") or [] for gap in each]:
        metrics["itl_s"] = statistics_of(np.array(gaps, np.float64))
    if totals.get("completed"):
        for name in ("prompt_tokens", "output_tokens"):
            if name in totals:
                metrics[name] = {"mean": totals[name] / totals["completed"]}
    return Measured(
        tool=TOOL,
        label=f"run {number}: rate {rate}, max_concurrency {limit}",
        model=str(result.get("model_id", "")),
        request_rate_per_s=float(rate) if is_number(rate) else None,
        max_concurrency=limit,
        totals=totals,
        statistics=filled(metrics),
        requests=_requests(result),
    )


def _of_metric(result: Mapping[str, Any], key: str) -> Statistics:
    """``mean_ttft_ms``, ``p99_ttft_ms`` ... in seconds."""
    found = {}
    for name, value in result.items():
        if (match := re.fullmatch(rf"(mean|median|std|p[\d.]+)_{key}_ms", name)) and is_number(value):
            found["p50" if match[1] == "median" else match[1]] = value / 1e3
    return found


def _requests(result: Mapping[str, Any]) -> Any:
    """The detailed arrays; None when they were not saved."""
    if not result.get("ttfts") or not result.get("input_lens"):
        return None
    count = len(result["ttfts"])
    errors = result.get("errors") or [""] * count
    starts = result.get("start_times") or [None] * count
    gaps = result.get("itls") or [[]] * count
    ends = result.get("latencies") or [
        first + sum(each) for first, each in zip(result["ttfts"], gaps, strict=True)
    ]  # fmt: skip
    columns = zip(starts, result["input_lens"], result["output_lens"], result["ttfts"], ends, errors, strict=True)
    return request_columns(
        {"arrival_s": start, "prompt_tokens": prompt, "output_tokens": output, "ttft_s": ttft, "e2e_s": end}
        for start, prompt, output, ttft, end, error in columns
        if not error
    )


def _block(number: int, text: str) -> Measured:
    """One printed block."""
    totals: dict[str, float] = {}
    metrics: dict[str, Statistics] = {}
    limits: dict[str, float] = {}
    for line in text.splitlines():
        label, colon, value = line.strip().rpartition(":")
        if not colon or not _is_float(value):
            continue
        if total := _LABELS.get(label.lower()):
            totals[total] = float(value)
        elif match := re.fullmatch(r"(Mean|Median|Std|P[\d.]+) (.+) \(ms\)", label):
            statistic = match[1].lower().replace("median", "p50")
            if name := _PRINTED.get(match[2]):
                metrics.setdefault(name, {})[statistic] = float(value) / 1e3
        else:
            limits[label.lower()] = float(value)
    if not totals or not metrics:
        raise ValueError("the block has no figures")
    if totals.get("completed"):
        for name in ("prompt_tokens", "output_tokens"):
            metrics |= {name: {"mean": totals[name] / totals["completed"]}} if name in totals else {}
    rate = next((value for label, value in limits.items() if "request rate" in label), None)
    most = next((value for label, value in limits.items() if label.startswith("max") and "concurrency" in label), None)
    return Measured(
        tool=TOOL,
        label=f"block {number}",
        request_rate_per_s=rate if rate is not None and np.isfinite(rate) else None,
        max_concurrency=None if most is None else int(most),
        totals=totals,
        statistics=metrics,
    )


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
