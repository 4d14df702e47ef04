"""How sure the latencies of one run are: intervals from the order in which its requests came."""

from typing import Any

import numpy as np

from llmsim.results.metrics import PERCENTILES, latencies
from llmsim.results.record import RunRecord
from llmsim.results.statistics import LEVEL, Floats, Interval, batch_means, percentile_interval

SERIES = ("ttft", "tpot", "e2e", "queue")
"""Metrics with one value a request. ITL has many, which are not kept in order."""
METHODS = {
    "mean": "batch means, corrected for the correlation of batches",
    "percentiles": "order statistics of as many independent values as batches tell",
}
"""What the intervals of a summary are made by: ``statistics.batch_means`` and ``percentile_interval``."""


def latency_series(record: RunRecord) -> dict[str, Floats]:
    """Seconds of each of ``SERIES`` of the measured, finished requests that have it, in order of arrival."""
    requests, facts = record.requests, record.facts
    arrival_s = requests["arrival_s"]
    inside = (arrival_s >= facts.window_start_s) & (arrival_s <= facts.window_end_s)
    kept = np.flatnonzero(inside & (requests["outcome"] == "finished"))
    kept = kept[np.argsort(arrival_s[kept], kind="stable")]
    columns = ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "output_tokens")
    values = latencies({name: requests[name][kept] for name in columns})
    return {metric: values[metric][~np.isnan(values[metric])] for metric in SERIES}


def latency_interval(record: RunRecord, metric: str, statistic: str) -> Interval:
    """The 95 % interval of a statistic (``mean`` or ``p99`` and the like) of one of ``SERIES``.

    NaN where the run is too short to tell, and at record level ``summary``, which keeps no requests.
    """
    series = latency_series(record)[metric]
    if statistic == "mean":
        return batch_means(series)
    return percentile_interval(series, float(statistic.removeprefix("p")))


def summarise_confidence(record: RunRecord) -> dict[str, Any]:
    """The intervals of a summary, as strict JSON: ``level``, ``methods``, and for each metric and statistic ``low``
    and ``high``, None where too little is known, as it always is at record level ``summary``."""
    found: dict[str, Any] = {"level": LEVEL, "methods": METHODS}
    for metric, series in latency_series(record).items():
        intervals = [batch_means(series), *(percentile_interval(series, each) for each in PERCENTILES)]
        names = ("mean", *(f"p{percentile}" for percentile in PERCENTILES))
        found[f"{metric}_s"] = {name: _bounds(each) for name, each in zip(names, intervals, strict=True)}
    return found


def _bounds(interval: Interval) -> dict[str, float | None]:
    return {"low": _known(interval.low), "high": _known(interval.high)}


def _known(bound: float) -> float | None:
    return None if np.isnan(bound) else bound
