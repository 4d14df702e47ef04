"""Hugging Face's inference-benchmarker: its JSON of several runs. Its inter-token latency is a request's mean gap."""

from collections.abc import Mapping
from typing import Any

from llmsim.validation.measured import Measured
from llmsim.validation.readers.common import filled, is_number, known, statistics

TOOL = "hf-inference-benchmarker"
FLAG = "inter_token_latency is a request's mean gap: taken as TPOT"
_METRICS = {"ttft_s": "time_to_first_token_ms", "tpot_s": "inter_token_latency_ms", "e2e_s": "e2e_latency_ms"}


def recognises(data: Any) -> bool:
    """Whether it has results of the tool's executors."""
    results = data.get("results") if isinstance(data, dict) else None
    return isinstance(results, list) and bool(results) and "executor_type" in results[0]


def read(data: Any) -> list[Measured]:
    """A run for each result."""
    model = str((data.get("config") or {}).get("model_name", ""))
    return [_result(each, model) for each in data["results"]]


def _result(result: Mapping[str, Any], model: str) -> Measured:
    settings = result.get("config") or {}
    closed = result["executor_type"] == "ConstantVUs"
    rate, users = settings.get("rate"), settings.get("max_vus")
    return Measured(
        tool=TOOL,
        label=str(result.get("id", result["executor_type"])),
        model=model,
        request_rate_per_s=rate if is_number(rate) and not closed else None,
        max_concurrency=users if closed else None,
        totals=known(
            {
                "completed": result.get("successful_requests"),
                "failed": result.get("failed_requests"),
                "requests_per_s": result.get("request_rate"),
                "output_tokens_per_s": result.get("token_throughput_secs"),
            }
        ),
        statistics=filled({name: statistics(result.get(key), 1e-3) for name, key in _METRICS.items()}),
        flags=(FLAG,),
    )
