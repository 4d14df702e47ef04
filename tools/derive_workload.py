"""Derive the statistics of a preset workload: ``python tools/derive_workload.py TRACE >> NAME.toml``.

What is kept: the number of requests, their mean rate, the relative rate of each whole minute, quantiles of
the prompt length, and quantiles of the output length in equally large groups of prompts. No row of the trace
is kept. Description, source and licence are written by hand.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmsim.workload import TraceWorkload

STEP_S = 60
GROUPS = 20
TAIL = (0.9925, 0.995, 0.9975, 0.999, 0.9995, 1.0)
PROMPT_SHARES = (*np.linspace(0, 0.99, 397), *TAIL)
OUTPUT_SHARES = (*np.linspace(0, 0.975, 40), 0.98, 0.985, 0.99, 0.995, 1.0)


def toml(values: NDArray[np.float64] | tuple[float, ...]) -> str:
    """Values as a TOML array."""
    return f"[{', '.join(f'{value:.6g}' for value in values)}]"


def quantiles(lengths: NDArray[np.int64], shares: tuple[float, ...]) -> str:
    """A law of lengths as TOML keys: at each share a length that occurs."""
    tokens = np.quantile(lengths, shares, method="inverted_cdf")
    return f"shares = {toml(shares)}\ntokens = {toml(tokens)}"


def main(path: Path) -> None:
    """Print the statistics as TOML."""
    table = TraceWorkload(path=path).generate(seed=0)
    span_s = table.arrival_ns[-1] / 1e9
    per_step = np.bincount(table.arrival_ns // (STEP_S * 10**9))[: int(span_s // STEP_S)]
    by_prompt = np.lexsort((table.output_tokens, table.prompt_tokens))
    print(f"requests = {len(table)}")
    print(f"mean_rate_per_s = {(len(table) - 1) / span_s:.6g}")
    print(f"\n[rate_profile]\nstep_s = {STEP_S}\nrelative = {toml(np.round(per_step / per_step.mean(), 4))}")
    print(f"\n[prompt_tokens]\n{quantiles(table.prompt_tokens, PROMPT_SHARES)}")
    for group in np.array_split(table.output_tokens[by_prompt], GROUPS):
        print(f"\n[[output_tokens_by_prompt]]\n{quantiles(group, OUTPUT_SHARES)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
