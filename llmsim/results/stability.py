"""Whether a server kept up with its arrivals: from the requests of a run, for verdicts and searches."""

from typing import Literal, NamedTuple

import numpy as np

from llmsim.results.record import Columns

FEW_REQUESTS = 200
"""With fewer requests nothing is said about stability."""
GROWTH, NO_GROWTH = 0.05, 0.02
"""Growth of the backlog, as shares of the arrivals, of a server that falls behind and one that keeps up."""


class Stability(NamedTuple):
    """The verdict and its evidence, over the second half of the arrivals."""

    verdict: Literal["stable", "saturated", "short", "unknown"]
    """short: the run does not tell; unknown: too few requests are known."""
    growth: float = 0.0
    """How much the requests in the system grew, as a share of the arrivals: the rate deficit."""
    before: int = 0
    """Requests in the system at the median arrival."""
    after: int = 0
    """Requests in the system at the last arrival."""
    served_per_s: float = 0.0
    """Requests that left a second: while saturated, the most that the server bears."""


def judge_stability(requests: Columns, window_start_s: float, window_end_s: float) -> Stability:
    """Whether requests left as fast as they came in the second half of the arrivals, where it can be told.

    The backlog of a server that keeps up wanders around a constant, that of one that does not grows in
    proportion to the arrivals. Growth counts beyond a share of the arrivals and four standard deviations of a
    Poisson count; its absence counts over a span long against the time a request stays.
    """
    arrival_s, outcome = requests["arrival_s"], requests["outcome"]
    inside = (arrival_s >= window_start_s) & (arrival_s <= window_end_s)
    served = inside & ((outcome == "finished") | (outcome == "in_flight"))
    arrival_s, finish_s = arrival_s[served], requests["finish_s"][served]
    if len(arrival_s) < FEW_REQUESTS or np.isnan(finish_s).all():
        return Stability("unknown")
    middle_s, last_s = np.median(arrival_s), arrival_s.max()
    before = int(np.sum(arrival_s <= middle_s) - np.sum(finish_s <= middle_s))
    after = int(len(arrival_s) - np.sum(finish_s <= last_s))
    arrived = int(np.sum(arrival_s > middle_s))
    growth = (after - before) / max(arrived, 1)
    served_per_s = (arrived - after + before) / (last_s - middle_s) if last_s > middle_s else 0.0
    evidence = (growth, before, after, float(served_per_s))
    if growth > max(GROWTH, 4 / np.sqrt(max(arrived, 1))):
        return Stability("saturated", *evidence)
    stay_s = np.nanmedian(finish_s - arrival_s)
    if growth > NO_GROWTH or last_s - middle_s < 5 * stay_s:
        return Stability("short", *evidence)
    return Stability("stable", *evidence)
