"""The figures: each function takes a ``Results`` and returns a plotly figure, for notebooks and the report.

All aggregate over replicas and draw a fixed number of points whatever the length of the run. A figure whose
data the record level left out says so in its middle.
"""

from llmsim.report.latency_figures import latency_distribution, latency_over_time, slowest_requests
from llmsim.report.load_figures import bound_over_time, load_over_time, throughput_over_time

__all__ = [
    "bound_over_time",
    "latency_distribution",
    "latency_over_time",
    "load_over_time",
    "slowest_requests",
    "throughput_over_time",
]
