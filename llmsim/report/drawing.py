"""What the figures over time have in common: their bins, their axis, lines and stacked areas."""

import plotly.graph_objects as go

from llmsim.report.binning import Floats, time_edges
from llmsim.report.style import line
from llmsim.results.results import Results

BINS = 240
"""Time bins of a figure: about a bin for every four pixels of a report."""
NO_ITERATIONS = 'Not drawn: no iterations are known (they are kept with record = "full" only).'
NO_REQUESTS = "Not drawn: the run had no requests, or did not keep them."


def edges_of(results: Results, bins: int) -> Floats:
    """Edges of equal bins from the start of a run to the end of its window, shape ``(bins + 1,)``."""
    return time_edges(0.0, results.facts.window_end_s, bins)


def middles(edges_s: Floats) -> Floats:
    """The middle of each bin, where its value is drawn."""
    return (edges_s[1:] + edges_s[:-1]) / 2


def draw_line(
    figure: go.Figure,
    row: int,
    edges_s: Floats,
    series: Floats,
    name: str,
    colour: str,
    hover: str = "%{y:.4g}",
) -> None:
    """A value a bin, as a line."""
    figure.add_scatter(
        x=middles(edges_s), y=series, row=row, col=1, name=name, mode="lines", line=line(colour),
        hovertemplate=hover,
    )  # fmt: skip


def draw_area(figure: go.Figure, row: int, edges_s: Floats, series: Floats, name: str, colour: str, hover: str) -> None:
    """One layer of a stack; the layers of a row stack in the order they are drawn."""
    figure.add_scatter(
        x=middles(edges_s), y=series, row=row, col=1, name=name, mode="lines", stackgroup=f"row{row}",
        line=line(colour, 0), fillcolor=colour, hovertemplate=hover,
    )  # fmt: skip


def over_time(figure: go.Figure, results: Results, edges_s: Floats) -> go.Figure:
    """Finish a figure over time: the axis, each panel's legend beside its title, the warm-up shaded."""
    _place_legends(figure)
    figure.update_xaxes(range=[float(edges_s[0]), float(edges_s[-1])], hoverformat=".4g")
    ticks_s = _round_ticks(float(edges_s[-1]))
    unit = "seconds" if ticks_s is None else "hours:minutes"
    if ticks_s is not None:
        figure.update_xaxes(tickvals=ticks_s, ticktext=[f"{t // 3600}:{t // 60 % 60:02}" for t in ticks_s])
    figure.update_xaxes(title_text=f"{unit} since the start", row=len(figure._grid_ref), col=1)
    if results.facts.window_start_s > 0:
        figure.add_vrect(x0=0, x1=results.facts.window_start_s, fillcolor="#8d99a5", opacity=0.12, line_width=0)
    return figure


def _place_legends(figure: go.Figure) -> None:
    for trace in figure.data:
        panel = (trace.yaxis or "y").removeprefix("y")
        trace.legend = f"legend{panel}"
        top = figure.layout[f"yaxis{panel}"].domain[1]
        figure.layout[f"legend{panel}"] = {
            "orientation": "h", "x": 1, "xanchor": "right", "y": top, "yanchor": "bottom",
            "yref": "paper", "traceorder": "normal", "bgcolor": "rgba(0,0,0,0)",
        }  # fmt: skip


def _round_ticks(end_s: float) -> list[int] | None:
    """Times to label on the axis of a run of more than half an hour; None leaves seconds to plotly."""
    if end_s < 1800:
        return None
    steps = (300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)
    step = next((step for step in steps if end_s / step <= 12), 86_400 * max(1, round(end_s / 86_400 / 12)))
    return list(range(0, int(end_s) + 1, step))
