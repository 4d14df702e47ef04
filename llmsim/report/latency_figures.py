"""Figures of latency: its distribution, its course over time, and where the time of the slowest went."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from llmsim.report.binning import Floats, cumulative_points, quantiles_per_bin
from llmsim.report.drawing import BINS, NO_ITERATIONS, NO_REQUESTS, edges_of, middles, over_time
from llmsim.report.style import (
    INK,
    LIMIT,
    METRIC_COLOURS,
    PART_STYLES,
    a_figure,
    empty_note,
    faint,
    line,
)
from llmsim.report.tables import METRIC_NAMES, slo_name
from llmsim.results.attribution import attribute
from llmsim.results.metrics import latencies
from llmsim.results.record import Columns
from llmsim.results.results import Results

SLOWEST = 10
SHORTEST_S = 1e-4
"""Shorter times are drawn here: a logarithmic axis has no zero."""
NOTHING_FINISHED = "Not drawn: no request finished in the measured window."


def latency_distribution(results: Results) -> go.Figure:
    """The share of requests with at most (left) and more than (right: the tail) a latency; SLO limits."""
    figure = a_figure(
        columns=2,
        height=380,
        subplot_titles=("Share of requests at or below", "Tail: share of requests above"),
        horizontal_spacing=0.09,
    )
    of_metric = latencies(measured(results))
    lowest = 1 / max(len(of_metric["e2e"]), 10)
    for metric in ("queue", "ttft", "tpot", "e2e"):
        values, shares = cumulative_points(of_metric[metric])
        if not len(values):
            continue
        seconds = np.maximum(np.append(values[0], values), SHORTEST_S)
        at_or_below = np.append(0.0, shares)
        above = np.maximum(1 - at_or_below, lowest / 2)
        for column, heights, hover in (
            (1, at_or_below, "%{y:.2%} ≤ %{x:.4g} s"),
            (2, above, "%{y:.3%} > %{x:.4g} s"),
        ):
            figure.add_scatter(
                x=seconds, y=heights, row=1, col=column, mode="lines",
                name=METRIC_NAMES[metric], legendgroup=metric, showlegend=column == 1, hovertemplate=hover,
                line=line(METRIC_COLOURS[metric], 2, shape="hv"),
            )  # fmt: skip
    if not figure.data:
        return empty_note(figure, NOTHING_FINISHED)
    _draw_distribution_limits(figure, results.facts.slo)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(type="log", title_text="seconds (log scale)", dtick=1, exponentformat="power")
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02], row=1, col=1)
    figure.update_yaxes(type="log", tickformat="~%", dtick=1, range=[np.log10(lowest) - 0.2, 0.1], row=1, col=2)
    return figure


def _draw_distribution_limits(figure: go.Figure, slo: dict[str, float]) -> None:
    """A line at each limit; for one of a percentile a cross, which the curve has to pass on its left."""
    for at, (key, limit_s) in enumerate(slo.items()):
        name, statistic = f"{slo_name(key)} limit", key.split("_")[1]
        for column in (1, 2):
            figure.add_vline(x=limit_s, line=line(LIMIT, 1.2, dash="dash"), row=1, col=column)
        above = 1 - int(statistic[1:]) / 100 if statistic.startswith("p") else 1.0
        for column, height in ((1, 1 - above), (2, above)):
            figure.add_scatter(
                x=[limit_s], y=[height], row=1, col=column, mode="markers", name=name, showlegend=False,
                marker={"symbol": "x", "size": 9, "color": LIMIT}, hovertemplate=f"{name}: %{{x:.4g}} s",
                visible=above < 1,
            )  # fmt: skip
        figure.add_annotation(
            x=np.log10(limit_s), y=np.log10(above), row=1, col=2, text=name, xanchor="left", showarrow=False,
            xshift=8, yshift=-10 if at % 2 else 10, font={"color": LIMIT, "size": 11},
            bgcolor="rgba(255,255,255,0.85)", borderpad=1,
        )  # fmt: skip


def latency_over_time(results: Results) -> go.Figure:
    """TTFT by arrival, TPOT by end and the gaps between tokens by time: median, p99 and maximum per bin."""
    requests, iterations = results.record.requests, results.record.iterations
    if not len(requests["arrival_s"]):
        return empty_note(a_figure(), NO_REQUESTS)
    of_metric = latencies(requests)
    panels = {
        "ttft": ("TTFT of requests, by arrival", requests["arrival_s"], of_metric["ttft"]),
        "tpot": ("TPOT of requests, by end", requests["finish_s"], of_metric["tpot"]),
    }
    if len(iterations["start_s"]):
        panels["itl"] = ("Gaps between tokens (ITL), an iteration each", *_token_gaps(iterations))
    figure = a_figure(
        rows=len(panels),
        height=80 + 190 * len(panels),
        shared_xaxes=True,
        vertical_spacing=0.09,
        subplot_titles=[title for title, _, _ in panels.values()],
    )
    edges_s = edges_of(results, BINS // 2)
    for row, (metric, (_, time_s, values)) in enumerate(panels.items(), 1):
        _draw_spread(figure, row, time_s, values, edges_s, METRIC_COLOURS[metric])
    for key, limit_s in results.facts.slo.items():
        metric = key.split("_")[0]
        if metric in panels:
            _draw_limit(figure, list(panels).index(metric) + 1, limit_s, f"{slo_name(key)} limit")
    figure.update_yaxes(title_text="seconds")
    return over_time(figure, results, edges_s)


def _token_gaps(iterations: Columns) -> tuple[Floats, Floats]:
    """Time and length of the gaps between the ends of a replica's iterations, where sequences decoded."""
    replica, end_s = iterations["replica"], iterations["end_s"]
    order = np.argsort(replica, kind="stable")
    replica, end_s = replica[order], end_s[order]
    decoded = iterations["decode_tokens"][order][1:] > 0
    kept = decoded & (replica[1:] == replica[:-1])
    return end_s[1:][kept], np.diff(end_s)[kept]


def _draw_spread(figure: go.Figure, row: int, time_s: Floats, values: Floats, edges_s: Floats, colour: str) -> None:
    median, p99, highest = quantiles_per_bin(time_s, values, edges_s, (0.5, 0.99, 1.0))
    middle_s = middles(edges_s)
    sparse = np.isfinite(median).sum() < len(median) / 2
    for name, series, width in (("maximum", highest, 0.0), ("p99", p99, 1.0), ("median", median, 2.2)):
        figure.add_scatter(
            x=middle_s, y=series, row=row, col=1, name=name, legendgroup=name, showlegend=row == 1,
            mode="lines+markers" if sparse and name == "median" else "lines", marker={"size": 4},
            line=line(INK if name == "median" else colour, width), hovertemplate="%{y:.4g} s",
            fill="tozeroy" if name == "maximum" else None, fillcolor=faint(colour),
        )  # fmt: skip


def _draw_limit(figure: go.Figure, row: int, limit_s: float, label: str) -> None:
    figure.add_hline(
        y=limit_s, row=row, col=1, line=line(LIMIT, 1.2, dash="dash"), annotation_text=label,
        annotation_position="top right", annotation_font={"color": LIMIT, "size": 11},
    )  # fmt: skip


def slowest_requests(results: Results) -> go.Figure:
    """Where the time of the ten requests with the longest E2E went, a bar each, the slowest on top."""
    figure = a_figure(height=400)
    requests = measured(results)
    if not len(requests["finish_s"]):
        return empty_note(figure, NOTHING_FINISHED)
    if results.facts.record != "full":
        return empty_note(figure, NO_ITERATIONS)
    order = np.argsort(requests["arrival_s"] - requests["finish_s"], kind="stable")[:SLOWEST]
    slowest = {name: column[order] for name, column in requests.items()}
    parts = attribute(replace(results.record, requests=slowest))
    rows = zip(*(slowest[name] for name in ("request_id", "prompt_tokens", "output_tokens")), strict=True)
    labels = [f"#{number}: {prompt:,} in, {output:,} out" for number, prompt, output in rows]
    for part, (name, colour) in PART_STYLES.items():
        if not parts[part].any():
            continue
        figure.add_bar(
            x=parts[part], y=labels, orientation="h", name=name, width=0.68,
            marker={"color": colour, "line": {"width": 0}}, hovertemplate="%{x:.4g} s",
        )  # fmt: skip
    figure.update_layout(barmode="stack", hovermode="y unified", height=110 + 27 * len(labels), margin_l=170)
    figure.update_xaxes(title_text="seconds since it was sent", showgrid=True, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return figure


def measured(results: Results) -> Columns:
    """The requests of the latency figures of the summary: arrived in the measured window, and finished."""
    requests = results.record.requests
    arrival_s, facts = requests["arrival_s"], results.facts
    inside = (arrival_s >= facts.window_start_s) & (arrival_s <= facts.window_end_s)
    chosen = inside & (requests["outcome"] == "finished")
    return {name: column[chosen] for name, column in requests.items()}
