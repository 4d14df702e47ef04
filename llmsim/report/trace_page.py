"""A trace as one HTML page: its figures, and pictures of its arrivals and lengths."""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from llmsim.report.html import CONFIG, script_json
from llmsim.report.page import PAGE, STYLE
from llmsim.report.style import ACCENT, INK, MUTED, a_figure, empty_note, line
from llmsim.report.tables import Rows
from llmsim.report.trace_text import COLUMNS, arrival_rows, content_rows, length_rows
from llmsim.units import NS_PER_S
from llmsim.workload.describe import Description, Recorded
from llmsim.workload.table import Ints

BINS = 240
POINTS = 4_000
"""Requests drawn in the scatter: more hide each other."""


def write_trace_page(name: str, recorded: Recorded, description: Description, path: Path) -> None:
    """Write the page of a trace to an HTML file that needs nothing else; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(trace_page(name, recorded, description), encoding="utf-8", newline="\n")


def trace_page(name: str, recorded: Recorded, description: Description) -> str:
    """The page as text."""
    figures = {name: draw(recorded) for name, draw, _, _ in FIGURES}
    odd = "".join(f"<li>{escape(oddity)}</li>" for oddity in description.oddities)
    body = [
        f"<header><p class=kind>llmsim trace</p><h1>{escape(name)}</h1></header>",
        _section("Requests", _definitions([*arrival_rows(description), *content_rows(description)])),
        _section("Lengths in tokens", _lengths_table(description)),
        _section("Odd", f"<ul class=notes>{odd}</ul>") if odd else "",
        *(
            _section(title, f'<figure><figcaption>{escape(caption)}</figcaption><div id="figure-{key}"></div></figure>')
            for key, _, title, caption in FIGURES
        ),
    ]
    return PAGE.format(
        title=escape(name),
        style=STYLE,
        plotly=get_plotlyjs(),
        body="\n".join(body),
        figures=script_json({key: json.loads(figure.to_json()) for key, figure in figures.items()}),
        config=script_json(CONFIG),
    )


def arrivals_figure(recorded: Recorded) -> go.Figure:
    """Rate over time, and the gaps' law."""
    figure = a_figure(columns=2, subplot_titles=("Requests a second", "Share of gaps longer than"))
    arrival_s = recorded.table.arrival_ns / NS_PER_S
    if not recorded.timed or arrival_s[-1] == 0:
        return empty_note(figure, "Not drawn: the file has no times of arrival.")
    edges_s = np.linspace(0.0, arrival_s[-1], BINS + 1)
    rates = np.histogram(arrival_s, edges_s)[0] / np.diff(edges_s)
    figure.add_scatter(x=(edges_s[1:] + edges_s[:-1]) / 2, y=rates, mode="lines", line=line(ACCENT), row=1, col=1)
    gaps = np.sort(np.diff(arrival_s))
    longer = np.geomspace(1, 1 / len(gaps), BINS)
    shown = np.quantile(gaps, 1 - longer)
    figure.add_scatter(x=shown, y=longer, mode="lines", line=line(INK), name="trace", row=1, col=2)
    poisson = np.exp(-shown / gaps.mean())
    figure.add_scatter(
        x=shown, y=poisson, mode="lines", line=line(MUTED, dash="dot"), name="Poisson", row=1, col=2
    )  # fmt: skip
    figure.update_yaxes(type="log", range=[np.log10(longer[-1]), 0], row=1, col=2)
    figure.update_xaxes(title_text="seconds since the first request", row=1, col=1)
    figure.update_xaxes(title_text="seconds", row=1, col=2)
    return figure.update_layout(showlegend=False)


def lengths_figure(recorded: Recorded) -> go.Figure:
    """Cumulative share of prompt and output lengths, on a logarithmic axis."""
    figure = a_figure()
    for name, tokens, colour in (
        ("prompt tokens", recorded.table.prompt_tokens, ACCENT),
        ("output tokens", recorded.table.output_tokens, INK),
    ):
        lengths, shares = _shares(tokens)
        figure.add_scatter(x=lengths, y=shares, mode="lines", line=line(colour, shape="hv"), name=name)
    figure.update_xaxes(type="log", title_text="tokens")
    return figure.update_yaxes(tickformat=".0%", range=[0, 1.02])


def pairs_figure(recorded: Recorded) -> go.Figure:
    """Prompt against output tokens of evenly chosen requests."""
    table = recorded.table
    rows = np.linspace(0, len(table) - 1, min(POINTS, len(table))).astype(np.int64)
    figure = a_figure()
    figure.add_scatter(
        x=table.prompt_tokens[rows], y=table.output_tokens[rows], mode="markers",
        marker={"size": 4, "opacity": 0.35, "color": ACCENT},
    )  # fmt: skip
    figure.update_xaxes(type="log", title_text="prompt tokens")
    figure.update_yaxes(type="log", title_text="output tokens", rangemode="normal")
    return figure.update_layout(hovermode="closest")


def _shares(tokens: Ints) -> tuple[Ints, np.ndarray]:
    """Distinct lengths, at most ``BINS``, and the share of requests up to each."""
    shares = np.linspace(0, 1, BINS + 1)
    lengths = np.unique(np.quantile(tokens, shares, method="inverted_cdf")).astype(np.int64)
    return lengths, np.searchsorted(np.sort(tokens), lengths, side="right") / len(tokens)


def _lengths_table(description: Description) -> str:
    head = "".join(f"<th scope=col>{column}</th>" for column in COLUMNS)
    rows = "".join(
        f"<tr><th scope=row>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, cells in length_rows(description)
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _definitions(rows: Rows) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows) + "</dl>"


FIGURES: tuple[tuple[str, Callable[[Recorded], go.Figure], str, str], ...] = (
    (
        "arrivals",
        arrivals_figure,
        "Arrivals",
        "Left, the rate over time; right, how often a gap is longer than a time: the dotted line is Poisson, a line "
        "that leaves it upwards is burstier.",
    ),
    ("lengths", lengths_figure, "Lengths", "Share of requests whose prompt or output is at most so long."),
    (
        "pairs",
        pairs_figure,
        "Prompt and output",
        "A dot for each of up to 4,000 requests: a pattern means that drawing the two apart would lose something.",
    ),
)
"""Figures of the page: name in it, function, title, how to read it."""
