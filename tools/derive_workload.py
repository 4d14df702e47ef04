"""Derive a preset workload's statistics from a trace: ``python tools/derive_workload.py TRACE.csv NAME > NAME.toml``.

What is kept: the number of requests, their mean rate, the relative rate of each whole minute, quantiles of the prompt
length, and quantiles of the output length in equal bins of the prompt's rank. No row of the trace is kept.
"""

import sys
from pathlib import Path

import numpy as np

from llmsim.workload import TraceWorkload

STEP_S = 60
PROMPT_QUANTILES = 401
BINS = 20
OUTPUT_QUANTILES = 41


def numbers(values: "np.ndarray") -> str:
    """Values as a TOML array."""
    return "[" + ", ".join(f"{value:g}" for value in values) + "]"


def quantiles(sorted_values: "np.ndarray", count: int) -> "np.ndarray":
    """Evenly spaced quantiles, each a value that occurs."""
    return np.quantile(sorted_values, np.linspace(0, 1, count), method="inverted_cdf")


def main(path: Path, name: str) -> None:
    """Print the TOML file."""
    table = TraceWorkload(path=path).generate(seed=0)
    span_s = table.arrival_ns[-1] / 1e9
    minutes = np.bincount(table.arrival_ns // (STEP_S * 10**9))[: int(span_s // STEP_S)]
    by_prompt = np.lexsort((table.output_tokens, table.prompt_tokens))
    outputs = [np.sort(part) for part in np.array_split(table.output_tokens[by_prompt], BINS)]
    print(f'name = "{name}"')
    print(f"requests = {len(table)}")
    print(f"mean_rate_per_s = {(len(table) - 1) / span_s:.6g}")
    print("# Evenly spaced quantiles of the prompt length, from the smallest to the largest.")
    print(f"prompt_tokens = {numbers(quantiles(table.prompt_tokens, PROMPT_QUANTILES))}")
    print("# Evenly spaced quantiles of the output length, one row for each bin of the prompt's rank, equally filled.")
    print("output_tokens_by_prompt = [")
    for part in outputs:
        print(f"  {numbers(quantiles(part, OUTPUT_QUANTILES))},")
    print("]")
    print("\n[rate_profile]")
    print(f"step_s = {STEP_S}")
    print("# Requests in each whole minute, relative to their mean.")
    print(f"relative = {numbers(np.round(minutes / minutes.mean(), 4))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
