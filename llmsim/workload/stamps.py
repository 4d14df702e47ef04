"""What is odd about recorded arrival times: grids, and units that may be wrong."""

import numpy as np
from numpy.random import Generator

from llmsim.units import NS_PER_S
from llmsim.workload.table import Ints


def spread(arrival_ns: Ints, resolution_ns: int | None, rng: Generator) -> Ints:
    """Arrivals in order, each moved by an even draw from 0 to ``resolution_ns``; None: the step of their grid."""
    step_ns = shared_grid_ns(arrival_ns) if resolution_ns is None else resolution_ns
    return np.sort(arrival_ns + rng.integers(step_ns, size=len(arrival_ns))) if step_ns else arrival_ns


def shared_grid_ns(arrival_ns: Ints) -> int:
    """The step of the grid on which arrivals lie if most share their instant with another, otherwise 0.

    A grid that is kept only roughly (2.999 s, 3.001 s ...) counts as one.
    """
    stamps, counts = np.unique(arrival_ns, return_counts=True)
    if len(stamps) < 2 or 2 * counts[counts > 1].sum() <= len(arrival_ns):
        return 0
    steps = np.diff(stamps)
    exact, smallest = int(np.gcd.reduce(steps)), int(np.quantile(steps, 0.05, method="lower"))
    return exact if 2 * exact >= smallest else smallest


def unit_doubt(arrival_ns: Ints) -> str:
    """Why arrival times may have been read in a wrong unit; empty when they look right.

    Whole seconds a minute or more apart are likely milliseconds; a million requests a second are likely seconds
    read as something smaller. Neither is said of fewer than 20 requests.
    """
    if (count := len(arrival_ns)) < 20 or not (span_s := np.ptp(arrival_ns) / NS_PER_S):
        return ""
    rate_per_s = (count - 1) / span_s
    if rate_per_s < 1 / 60 and not np.any(arrival_ns % NS_PER_S):
        return f"times are whole seconds, {1 / rate_per_s:,.0f} s apart on average; are they milliseconds?"
    if rate_per_s > 1e6:
        return f"{rate_per_s:,.0f} requests a second; are the times in a larger unit?"
    return ""
