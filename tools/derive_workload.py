"""Derive the statistics of a preset workload: ``python tools/derive_workload.py TRACE [STEP_S] >> NAME.toml``.

TRACE is a trace file, or what ``ServeGenWorkload`` reads, of which a thinned day is drawn. What is kept: the number
of requests, their mean rate, the relative rate of each whole step, the coefficient of variation of the gaps when
that is taken out, quantiles of the prompt length, quantiles of the output length in equally large groups of
prompts, and, when prompts share prefixes, quantiles of how much and how long after. No row of the trace is kept.
Description, source and licence are written by hand.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from llmsim.workload import RequestTable, ServeGenWorkload, TraceWorkload
from llmsim.workload.describe import prefix_hits
from llmsim.workload.rates import Steps
from llmsim.workload.readers.servegen import is_servegen, read_servegen
from llmsim.workload.servegen import WINDOW_S

GROUPS = 20
TAIL = (0.9925, 0.995, 0.9975, 0.999, 0.9995, 1.0)
PROMPT_SHARES = (*np.linspace(0, 0.99, 397), *TAIL)
OUTPUT_SHARES = (*np.linspace(0, 0.975, 40), 0.98, 0.985, 0.99, 0.995, 1.0)
REUSE_SHARES = np.linspace(0, 1, 41)
REUSE_GROUPS = 10
THINNED_PER_S = 6.0
BURSTY = 1.15
"""Gaps less variable than this count as Poisson."""


def toml(values: NDArray[np.float64] | tuple[float, ...]) -> str:
    """Values as a TOML array."""
    return f"[{', '.join(f'{value:.6g}' for value in values)}]"


def quantiles(lengths: NDArray[np.int64], shares: tuple[float, ...]) -> str:
    """A law of lengths as TOML keys: at each share a length that occurs."""
    tokens = np.quantile(lengths, shares, method="inverted_cdf")
    return f"shares = {toml(shares)}\ntokens = {toml(tokens)}"


def print_reuse(table: RequestTable) -> None:
    """How much prompts have in common with earlier ones; nothing when they have nothing."""
    hits, sources = prefix_hits(table)
    if not hits.any():
        return
    common = int(np.bincount(hits[hits > 0]).argmax())
    after_s = (table.arrival_ns - table.arrival_ns[sources])[hits > common] / 1e9
    deep = hits > common
    after_s = (table.arrival_ns - table.arrival_ns[sources])[deep] / 1e9
    groups = np.array_split(np.argsort(table.prompt_tokens, kind="stable"), REUSE_GROUPS)
    print(f"\n[prefix_reuse]\ncommon_tokens = {common}")
    print(f"reusing = {toml(np.array([deep[group].mean() for group in groups]).round(4))}")
    print(f"after_s = {toml(np.quantile(after_s, REUSE_SHARES).round(1))}\nreused_share = [")
    for group in groups:
        shares = (hits / table.prompt_tokens)[group][deep[group]]
        print(f"  {toml(np.quantile(shares, REUSE_SHARES).round(4))},")
    print("]")


def main(path: Path, step_s: float) -> None:
    """Print the statistics as TOML."""
    if is_servegen(path):
        step_s = WINDOW_S
        table = ServeGenWorkload(path=path, rate_per_s=THINNED_PER_S).generate(seed=0)
        hour = ServeGenWorkload(path=path, duration_s=3600.0).generate(seed=0).arrival_ns / 1e9
        expected = sum(window.rate_per_s for client in read_servegen(path) for window in client.windows) * WINDOW_S
        requests, mean_rate_per_s = 100_000, expected / 86_400
    else:
        table = TraceWorkload(path=path).generate(seed=0)
        hour = table.arrival_ns / 1e9
        requests, mean_rate_per_s = len(table), (len(table) - 1) / hour[-1]
    span_s = table.arrival_ns[-1] / 1e9
    per_step = np.bincount(table.arrival_ns // int(step_s * 10**9))[: int(span_s // step_s)]
    relative = np.round(per_step / per_step.mean(), 4)
    profile = Steps(step_s=step_s, relative=tuple(relative.tolist()))
    gaps = np.diff([profile.integral(time) for time in hour.tolist()])
    print(f"requests = {requests}\nmean_rate_per_s = {mean_rate_per_s:.6g}")
    if (cv := gaps.std() / gaps.mean()) > BURSTY:
        print(f'\n[arrivals]\nkind = "weibull"\ncv = {cv:.3g}')
    print(f"\n[rate_profile]\nstep_s = {step_s:g}\nrelative = {toml(relative)}")
    print(f"\n[prompt_tokens]\n{quantiles(table.prompt_tokens, PROMPT_SHARES)}")
    by_prompt = np.lexsort((table.output_tokens, table.prompt_tokens))
    for group in np.array_split(table.output_tokens[by_prompt], GROUPS):
        print(f"\n[[output_tokens_by_prompt]]\n{quantiles(group, OUTPUT_SHARES)}")
    print_reuse(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)
