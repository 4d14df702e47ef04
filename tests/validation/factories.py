"""Tables of measurements with defaults, so that a test states only what it is about."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEASURED = {
    "source_id": "bench",
    "engine": "vllm",
    "engine_version": "0.19",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "hardware": "H100-80GB",
    "n_gpus": 1,
    "tp": 1,
    "weight_dtype": "bf16",
    "load_kind": "closed-loop concurrency",
    "concurrency": 4,
    "input_tokens": 512,
    "output_tokens": 64,
    "metric": "tpot_ms",
    "statistic": "mean",
    "value": 7.0,
}

STEP = {
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm",
    "phase": "decode",
    "batch": 1,
    "new_tokens_per_seq": 1,
    "context": 1024,
    "latency_ms": 6.5,
}


def a_file(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A CSV file of rows; the columns are those of the first."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
