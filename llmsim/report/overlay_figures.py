"""Figures of a measured server beside its simulation: dark is measured, coloured is simulated."""

import numpy as np
import plotly.graph_objects as go

from llmsim.report.style import INK, METRIC_COLOURS, a_figure, line
from llmsim.validation.overlay import PERCENTILES, Overlay

METRICS = ("ttft", "tpot", "e2e")
POINTS = 240


def cdf_overlay(overlay: Overlay) -> go.Figure:
    """The share of requests below each latency, one panel a metric."""
    measured, simulated = overlay.latencies()
    figure = a_figure(columns=3, subplot_titles=[f"{metric.upper()} in seconds" for metric in METRICS])
    for column, metric in enumerate(METRICS, start=1):
        for name, values, colour in (
            ("measured", measured[metric], INK),
            ("simulated", simulated[metric], "#d55e00"),
        ):
            figure.add_scatter(
                x=np.percentile(values, np.linspace(0, 100, POINTS)),
                y=np.linspace(0, 1, POINTS),
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                line=line(colour),
                row=1,
                col=column,
            )
    return figure


def load_overlay(overlay: Overlay) -> go.Figure:
    """Requests in the system over time, and TTFT by arrival."""
    figure = a_figure(rows=2, height=480, subplot_titles=("Requests in the system", "TTFT by arrival, in seconds"))
    end_s = max(overlay.measured.finish_s.max(), overlay.simulated.finish_s.max())
    edges_s = np.linspace(0, end_s, POINTS)
    ttft = [each["ttft"] for each in overlay.latencies()]
    pairs = zip(
        ("measured", "simulated"),
        overlay.in_flight(edges_s),
        (overlay.measured, overlay.simulated),
        ttft,
        (INK, "#d55e00"),
        strict=True,
    )
    for name, count, requests, waited_s, colour in pairs:
        figure.add_scatter(x=edges_s, y=count, name=name, line=line(colour), row=1, col=1)
        figure.add_scatter(
            x=requests.arrival_s, y=waited_s, name=name, mode="markers", showlegend=False,
            marker={"size": 3, "color": colour}, row=2, col=1,
        )  # fmt: skip
    figure.update_xaxes(title_text="seconds since the first arrival", row=2, col=1)
    return figure


def percentile_errors(overlay: Overlay) -> go.Figure:
    """Simulated over measured at percentiles, a line a metric."""
    figure = a_figure(height=300, subplot_titles=["Error at each percentile, in %"])
    for metric, errors in overlay.percentile_errors().items():
        figure.add_scatter(
            x=[f"p{share}" for share in PERCENTILES], y=100 * errors, name=metric.upper(), mode="lines+markers",
            line=line(METRIC_COLOURS[metric]),
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": INK, "width": 1})
    return figure
