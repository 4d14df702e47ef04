"""How sure the latencies of one run are: intervals from the order in which its requests came."""

import numpy as np

from llmsim.results.metrics import latencies
from llmsim.results.record import RunRecord
from llmsim.results.statistics import Floats, Interval, batch_means, block_bootstrap

SERIES = ("ttft", "tpot", "e2e", "queue")
"""Metrics with one value a request. ITL has many, which are not kept in order."""


def latency_series(record: RunRecord, metric: str) -> Floats:
    """Seconds of a metric of the measured, finished requests that have it, in order of arrival, shape ``(n,)``."""
    requests, facts = record.requests, record.facts
    arrival_s = requests["arrival_s"]
    inside = (arrival_s >= facts.window_start_s) & (arrival_s <= facts.window_end_s)
    kept = np.flatnonzero(inside & (requests["outcome"] == "finished"))
    kept = kept[np.argsort(arrival_s[kept], kind="stable")]
    columns = ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "output_tokens")
    values = latencies({name: requests[name][kept] for name in columns})[metric]
    return values[~np.isnan(values)]


def latency_interval(record: RunRecord, metric: str, statistic: str) -> Interval:
    """The 95 % interval of a statistic (``mean`` or ``p99`` and the like) of one of ``SERIES``.

    NaN where the run is too short to tell, and at record level ``summary``, which keeps no requests.
    """
    series = latency_series(record, metric)
    if statistic == "mean":
        return batch_means(series)
    return block_bootstrap(series, float(statistic.removeprefix("p")))
