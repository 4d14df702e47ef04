"""The report of a run as one HTML file that needs nothing else: no network, no folder beside it.

The verdict stands on top, the numbers follow, then the figures with a sentence each on how to read them, and
at the end everything needed to run it again. The same results give the same bytes.
"""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from llmsim.report import figures
from llmsim.report.overlay_figures import cdf_overlay, load_overlay, percentile_errors
from llmsim.report.page import PAGE, STYLE
from llmsim.report.tables import (
    STATISTICS,
    Rows,
    cost_rows,
    gibibytes,
    headline_numbers,
    latency_rows,
    memory_rows,
    pool_rows,
    run_rows,
    throughput_rows,
    use_rows,
)
from llmsim.report.verdict import judge
from llmsim.results.results import Results
from llmsim.validation.overlay import Overlay, beside

MARKS = {"met": "✓", "missed": "✗", "none": "–"}

FIGURES: tuple[tuple[str, Callable[[Results], go.Figure], str, str], ...] = (
    (
        "bound",
        figures.bound_over_time,
        "What bound each moment",
        "The largest area is what a faster chip, a smaller model or another batch would have to relieve; "
        "pale is time in which replicas had nothing to do.",
    ),
    (
        "load",
        figures.load_over_time,
        "Load",
        "A waiting line that keeps rising means more arrives than is served; KV at 100 % with preemption "
        "marks means memory, not arithmetic, limits the batch.",
    ),
    (
        "throughput",
        figures.throughput_over_time,
        "Throughput",
        "Where finishing stays below arriving a backlog builds; the gap closes when the queue drains.",
    ),
    (
        "latency",
        figures.latency_distribution,
        "Latency distributions",
        "Left, a curve further left is faster; right, the same on a scale that shows the tail. A cross marks "
        "an SLO limit: the curve of its metric has to pass to the left of it.",
    ),
    (
        "latency-time",
        figures.latency_over_time,
        "Latency over time",
        "The dark line is the median, the coloured one the p99 of each moment, the shade reaches to the "
        "maximum: peaks of the gaps are iterations that also computed prompts of others.",
    ),
    (
        "slowest",
        figures.slowest_requests,
        "The ten slowest requests",
        "Each bar is one request from sending to its last token: orange is waiting for a place, pale green "
        "is the part of its decode that the prompts of others took (iterations are split by tokens).",
    ),
)
"""Figures of the report: name in the page, function, title, how to read it."""

OVERLAYS: tuple[tuple[str, Callable[[Overlay], go.Figure], str], ...] = (
    ("measured-cdf", cdf_overlay, "Where the curves lie on each other, as many requests were as fast."),
    ("measured-load", load_overlay, "A simulated server that is too fast has fewer requests in it."),
    ("measured-errors", percentile_errors, "Above 0: simulated too slow."),
)
"""Figures of a measured server beside the run: name in the page, function, how to read it."""

CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}
"""Plotly's own buttons, without the two that lead outside: its site, and the upload of a chart."""


def write_report(results: Results, path: str | Path, measured: str | Path | None = None) -> Path:
    """Write the report of a run to one HTML file and return its path; missing folders are made.

    ``measured``: a table of requests as a real server answered them, which the report shows beside the run.

    Raises:
        ScenarioError: when ``measured`` is no such table, or the result kept no requests.
    """
    path = Path(path)
    overlay = None if measured is None else beside(results, Path(measured))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report_page(results, overlay), encoding="utf-8", newline="\n")
    return path


def report_page(results: Results, overlay: Overlay | None = None) -> str:
    """The report of a run as the text of an HTML page."""
    summary = results.summary()
    drawn = [(name, draw(results)) for name, draw, _, _ in FIGURES]
    compared = [] if overlay is None else [(name, draw(overlay)) for name, draw, _ in OVERLAYS]
    body = [
        _header(results),
        _section("Key numbers", _tiles(results)),
        _section("What was simulated", _cards(pool_rows(results.facts), run_rows(results.facts))),
        _section("Latency", _latency_table(summary)),
        _section(
            "Throughput, use and cost",
            _cards(throughput_rows(summary), use_rows(summary) + cost_rows(summary)),
        ),
        _overlay(overlay),
        *(_section(title, _figure(name, caption)) for name, _, title, caption in FIGURES),
        _notes(results.facts.notes),
        _memory(results.facts.pools),
        _scenario(results.facts.scenario_text),
    ]
    return PAGE.format(
        title=escape(results.facts.scenario),
        style=STYLE,
        plotly=get_plotlyjs(),
        body="\n".join(part for part in body if part),
        figures=script_json({name: json.loads(figure.to_json()) for name, figure in drawn + compared}),
        config=script_json(CONFIG),
    )


def _header(results: Results) -> str:
    verdict = judge(results)
    sentences = "".join(f"<li>{escape(text)}</li>" for text in verdict.targets)
    mark = f"<span class=mark>{MARKS[verdict.status]}</span>"
    return (
        f"<header><p class=kind>llmsim report</p><h1>{escape(results.facts.scenario)}</h1>"
        f'<div class="verdict {verdict.status}"><p class=headline>{mark}{escape(verdict.headline)}</p>'
        f"<ul>{sentences}</ul>"
        f"<p>{escape(verdict.binding)}</p><p>{escape(verdict.stability)}</p>"
        f"<p>{escape(verdict.confidence)}</p></div></header>"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _tiles(results: Results) -> str:
    tiles = (
        f"<div class=tile><p class=name>{escape(name)}</p><p class=value>{escape(value)}</p>"
        f"<p class=more>{escape(more)}</p></div>"
        for name, value, more in headline_numbers(results)
    )
    return f"<div class=tiles>{''.join(tiles)}</div>"


def _definitions(rows: Rows) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows) + "</dl>"


def _latency_table(summary: dict[str, Any]) -> str:
    head = "".join(f"<th scope=col>{statistic}</th>" for statistic in STATISTICS)
    rows = "".join(
        f"<tr><th scope=row>{escape(name)} <span class=meaning>{escape(meaning)}</span></th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, meaning, cells in latency_rows(summary)
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cards(*parts: Rows) -> str:
    return f"<div class=cards>{''.join(_definitions(rows) for rows in parts)}</div>"


def _figure(name: str, caption: str) -> str:
    return f'<figure><figcaption>{escape(caption)}</figcaption><div id="figure-{name}"></div></figure>'


def _overlay(overlay: Overlay | None) -> str:
    if overlay is None:
        return ""
    figures = "".join(_figure(name, caption) for name, _, caption in OVERLAYS)
    return _section(f"Beside the measured requests of {overlay.name}", figures)


def _notes(notes: list[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return _section("Assumptions", f"<ul class=notes>{items}</ul>")


def _memory(pools: list[dict[str, Any]]) -> str:
    """The memory ledger of each pool that has one."""
    tables = []
    for pool in pools:
        rows = "".join(
            f"<tr><th scope=row>{escape(name)}</th><td>{gibibytes(count)}</td></tr>"
            for name, count in memory_rows(pool)
        )
        if rows:
            caption = f"Pool {escape(str(pool.get('name', '')))}, each GPU"
            tables.append(f"<table class=ledger><caption>{caption}</caption><tbody>{rows}</tbody></table>")
    return _section("Memory", f"<div class=cards>{''.join(tables)}</div>") if tables else ""


def _scenario(text: str) -> str:
    summary = "<summary>The scenario as canonical JSON</summary>"
    return _section("Run it again", f"<details>{summary}<pre>{escape(_indented(text))}</pre></details>")


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character that could end it."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
