"""Measured results of a real server in one form, whichever tool measured them, and the check that they add up.

One meaning each, as in llmsim's own results: TTFT from sending to the first token; TPOT (E2E - TTFT) / (n - 1), of
requests of n >= 2 tokens, averaged over requests; ITL every gap between two tokens, pooled; E2E from sending to the
last token. Tools that mean something else by a name are translated by their reader, which says so in ``flags``.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Columns = dict[str, Floats]
Statistics = dict[str, float]

METRICS = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "normalized_latency_s", "queue_s", "prompt_tokens", "output_tokens")
"""Keys of ``Measured.statistics``. Normalised latency is E2E / n."""
TOTALS = (
    "duration_s",
    "completed",
    "failed",
    "prompt_tokens",
    "output_tokens",
    "requests_per_s",
    "goodput_per_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
)
"""Keys of ``Measured.totals``; throughputs are over the tool's duration, which may include ramp and drain."""
REQUEST_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s")
"""Columns of ``Measured.requests``."""
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
SAME_LENGTHS_TOLERANCE = 0.02
"""How far the mean TPOT may be from (E2E - TTFT) / (n - 1) of the means, when all outputs have about one length."""
TOLERANCE = 0.25
"""The same when they differ, or nothing is known of it: the mean of ratios is not the ratio of means."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a benchmark."""

    tool: str
    label: str
    """Which run of the file: a stage, a rate, a number of users."""
    model: str = ""
    request_rate_per_s: float | None = None
    """Rate asked for; None: as fast as the limit on concurrency allows, or not known."""
    max_concurrency: int | None = None
    """Most requests in flight; None: no limit, or not known."""
    totals: dict[str, float] = field(default_factory=dict)
    """Some of ``TOTALS``."""
    statistics: dict[str, Statistics] = field(default_factory=dict)
    """Of some of ``METRICS``: mean, std, min, max, p50, p99 ... in seconds and tokens."""
    requests: Columns | None = None
    """Arrays of one length under ``REQUEST_COLUMNS``, of completed requests; NaN where not known."""
    flags: tuple[str, ...] = ()
    """What was translated, computed anew, or does not add up."""


def checked(measured: Measured) -> Measured:
    """The same, with statistics from its requests where it has them, and a TPOT that adds up.

    A mean TPOT with which TTFT + (n - 1) TPOT misses E2E is replaced by (E2E - TTFT) / (n - 1) of the means and
    flagged; its other statistics, which cannot be mended, are dropped. Streams whose events are not tokens, and
    tools that count the first token, cause it.
    """
    if measured.requests is not None:
        return _from_requests(measured, measured.requests)
    means = {name: values["mean"] for name, values in measured.statistics.items() if "mean" in values}
    if not {"ttft_s", "e2e_s", "output_tokens"} <= means.keys() or means["output_tokens"] <= 1:
        return measured
    if means["e2e_s"] <= means["ttft_s"]:
        return replace(measured, flags=(*measured.flags, "E2E is no longer than TTFT: one of them is of another unit"))
    true_s = (means["e2e_s"] - means["ttft_s"]) / (means["output_tokens"] - 1)
    if "tpot_s" not in means:
        flag = "TPOT is not given; computed from the means of E2E, TTFT and output tokens"
    else:
        if abs(means["tpot_s"] / true_s - 1) <= _tolerance(measured.statistics["output_tokens"]):
            return measured
        flag = _flag(means["tpot_s"], true_s)
    return replace(
        measured,
        statistics=measured.statistics | {"tpot_s": {"mean": true_s}},
        flags=(*measured.flags, flag),
    )


def _from_requests(measured: Measured, requests: Columns) -> Measured:
    """Statistics computed from requests; a TPOT that the tool gave and that differs is flagged."""
    found = _of_requests(requests)
    given, true = (values.get("tpot_s", {}).get("mean") for values in (measured.statistics, found))
    flags = measured.flags
    if given and true and abs(given / true - 1) > SAME_LENGTHS_TOLERANCE:
        flags = (*flags, _flag(given, true))
    return replace(measured, statistics=measured.statistics | found, flags=flags)


def _flag(given_s: float, true_s: float) -> str:
    return (
        f"TPOT is given as {given_s * 1e3:.3g} ms, {given_s / true_s:.2g} times (E2E - TTFT) / (n - 1) = "
        f"{true_s * 1e3:.3g} ms, which is taken"
    )


def statistics_of(values: Floats) -> Statistics:
    """Mean, spread and percentiles (linear interpolation) of the values that are known; empty when none is."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {}
    percentiles = np.percentile(known, PERCENTILES).tolist()
    return {
        "mean": float(known.mean()),
        "std": float(known.std()),
        "min": float(known.min()),
        "max": float(known.max()),
        **{f"p{share}": value for share, value in zip(PERCENTILES, percentiles, strict=True)},
    }


def _of_requests(requests: Columns) -> dict[str, Statistics]:
    """Statistics of all metrics that requests have."""
    output, e2e_s = requests["output_tokens"], requests["e2e_s"]
    several = np.where(output >= 2, output - 1, np.nan)
    columns = {
        "ttft_s": requests["ttft_s"],
        "tpot_s": (e2e_s - requests["ttft_s"]) / several,
        "e2e_s": e2e_s,
        "normalized_latency_s": e2e_s / np.where(output >= 1, output, np.nan),
        "prompt_tokens": requests["prompt_tokens"],
        "output_tokens": output,
    }
    found = {name: statistics_of(values) for name, values in columns.items()}
    return {name: values for name, values in found.items() if values}


def _tolerance(outputs: Statistics) -> float:
    mean = outputs["mean"]
    least, most = outputs.get("min", outputs.get("p1")), outputs.get("max", outputs.get("p99"))
    same = least is not None and most is not None and 0.9 * mean <= least <= most <= 1.1 * mean
    return SAME_LENGTHS_TOLERANCE if same or outputs.get("std", mean) < 0.05 * mean else TOLERANCE
