"""One look for all figures and pages: a colour per meaning, the layout, how limits are drawn.

Colours are of the palette of Okabe and Ito, "Color Universal Design" (2008), which people with any colour
vision can tell apart; each has one meaning in every figure.
"""

from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

ACCENT = "#1f5fa8"
INK = "#1b2733"
MUTED = "#5b6875"
GRID = "#e6eaee"
LIMIT = "#a4123f"

RESOURCE_COLOURS = {
    "compute": "#0072b2",
    "hbm": "#e69f00",
    "link": "#cc79a7",
    "overhead": "#8d99a5",
    "idle": "#edf0f3",
}
RESOURCE_NAMES = {
    "compute": "compute",
    "hbm": "HBM bandwidth",
    "link": "links",
    "overhead": "overhead",
    "idle": "idle",
}

QUEUED = "#d55e00"
PREFILL = "#009e73"
DECODE = "#56b4e9"
PREEMPTED = "#5d3a9b"
PART_STYLES = {
    "frontend_s": ("frontend", "#8d99a5"),
    "waiting_s": ("queued", QUEUED),
    "prefill_s": ("own prefill", PREFILL),
    "decode_s": ("decode", DECODE),
    "others_prefill_s": ("others' prefill", "#94d5c0"),
    "preempted_s": ("preempted", PREEMPTED),
}
"""Name and colour of each part of a request's latency (``attribution.PARTS``)."""
METRIC_COLOURS = {"ttft": PREFILL, "tpot": DECODE, "itl": DECODE, "e2e": INK, "queue": QUEUED}

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"


def a_figure(rows: int = 1, columns: int = 1, height: int = 340, **subplots: Any) -> go.Figure:
    """An empty figure in the common look; further arguments go to ``plotly.subplots.make_subplots``."""
    figure = make_subplots(rows=rows, cols=columns, **subplots)
    figure.update_layout(
        template="none",
        height=height,
        font={"family": FONT, "size": 12, "color": INK},
        margin={"l": 64, "r": 16, "t": 56, "b": 44},
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.0,
            "yref": "container",
            "yanchor": "top",
            "traceorder": "normal",
        },
        hovermode="x unified",
        hoverlabel={"font": {"size": 12}},
        paper_bgcolor="white",
        plot_bgcolor="white",
    )
    axis = {
        "gridcolor": GRID,
        "linecolor": "#b8c1ca",
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "#b8c1ca",
        "tickfont": {"color": MUTED, "size": 11},
        "title": {"font": {"size": 12, "color": MUTED}, "standoff": 8},
    }
    figure.update_xaxes(**axis, showgrid=False)
    figure.update_yaxes(**axis, showgrid=True, rangemode="tozero")
    for number, title in enumerate(figure.layout.annotations, 1):
        axis_of_title = figure.layout["xaxis" if number == 1 else f"xaxis{number}"]
        title.update(font={"size": 12.5, "color": INK}, xanchor="left", x=axis_of_title.domain[0])
    return figure


def line(colour: str, width: float = 1.6, **more: Any) -> dict[str, Any]:
    """A line's style; ``shape`` and ``dash`` as plotly has them."""
    return {"color": colour, "width": width} | more


def empty_note(figure: go.Figure, text: str) -> go.Figure:
    """Say in the middle of a figure why it shows nothing, and hide its axes."""
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    figure.update_layout(height=120, showlegend=False)
    figure.layout.annotations = ()
    figure.add_annotation(
        text=text,
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        font={"size": 13, "color": MUTED},
    )
    return figure


def faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.25)"


def shade(number: int, count: int) -> str:
    """Shades of the accent colour from dark to light, one a replica."""
    red, green, blue = (int(ACCENT[at : at + 2], 16) for at in (1, 3, 5))
    lift = 0.7 * number / max(count - 1, 1)
    return "#" + "".join(f"{round(c + (255 - c) * lift):02x}" for c in (red, green, blue))
