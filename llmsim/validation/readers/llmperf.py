"""llmperf: the flat summary of a run, and its responses one by one. A closed loop.

Its inter-token latency is E2E / n, the first token counted: llmsim's normalised latency. Tokens are counted by a
Llama tokenizer whatever the model.
"""

import re
from collections.abc import Mapping
from typing import Any

from llmsim.validation.measured import Measured, Statistics
from llmsim.validation.readers.common import filled, is_number, known, request_columns, statistics

TOOL = "llmperf"
FLAG = "llmperf's inter-token latency is E2E / n, the first token counted: taken as normalised latency"
_METRICS = {
    "ttft_s": "ttft_s",
    "normalized_latency_s": "inter_token_latency_s",
    "e2e_s": "end_to_end_latency_s",
    "prompt_tokens": "number_input_tokens",
    "output_tokens": "number_output_tokens",
}


def recognises(data: Any) -> bool:
    """Whether it has the summary's flat keys, or responses with the tool's names."""
    if isinstance(data, dict):
        return any(key.startswith("results_ttft_s") for key in data)
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and "end_to_end_latency_s" in data[0]


def read(data: Any) -> list[Measured]:
    """The one run."""
    if isinstance(data, list):
        return [_responses(data)]
    per_minute = data.get("results_num_completed_requests_per_min")
    return [
        Measured(
            tool=TOOL,
            label="summary",
            model=str(data.get("model", "")),
            max_concurrency=data.get("num_concurrent_requests"),
            totals=known(
                {
                    "completed": data.get("results_num_completed_requests"),
                    "failed": data.get("results_number_errors"),
                    "requests_per_s": per_minute / 60 if is_number(per_minute) else None,
                    "output_tokens_per_s": data.get("results_mean_output_throughput_token_per_s"),
                }
            ),
            statistics=filled({name: _of_metric(data, key) for name, key in _METRICS.items()}),
            flags=(FLAG,),
        )
    ]


def _of_metric(data: Mapping[str, Any], key: str) -> Statistics:
    """``results_ttft_s_quantiles_p99``, ``results_ttft_s_mean`` ... by statistic."""
    names = (re.fullmatch(rf"results_{key}_(?:quantiles_)?(\w+)", name) for name in data)
    return statistics({match[1]: data[match[0]] for match in names if match})


def _responses(rows: list[Mapping[str, Any]]) -> Measured:
    good = [row for row in rows if not row.get("error_code") and row.get("number_output_tokens")]
    failed = len(rows) - len(good)
    return Measured(
        tool=TOOL,
        label="responses",
        totals={"completed": float(len(good)), "failed": float(failed)},
        requests=request_columns(
            {name: row.get(key) for name, key in _METRICS.items() if name != "normalized_latency_s"} for row in good
        ),
        flags=(f"{failed} requests failed, and are left out",) if failed else (),
    )
