"""How far simulations are from measured servers, as one HTML page that needs nothing else."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from llmsim.report.html import CONFIG, script_json
from llmsim.report.overlay_figures import cdf_overlay, load_overlay, percentile_errors
from llmsim.report.page import PAGE, STYLE
from llmsim.report.style import INK, a_figure
from llmsim.report.validation_tables import GROUPS, STATISTICS, error_rows, sentence
from llmsim.validation.compare import Scored, TableErrors, grouped
from llmsim.validation.overlay import Overlay

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d3a9b", "#8d99a5")


def write_validation_page(tables: Sequence[TableErrors], path: Path, overlays: Sequence[Overlay] = ()) -> None:
    """Write the page: errors of every table, and measured traces beside their runs; missing folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(validation_page(tables, overlays), encoding="utf-8", newline="\n")


def validation_page(tables: Sequence[TableErrors], overlays: Sequence[Overlay] = ()) -> str:
    """The page as text."""
    figures: dict[str, go.Figure] = {}
    body = ["<header><p class=kind>llmsim validate</p><h1>Simulated against measured servers</h1></header>"]
    for index, table in enumerate(tables):
        figures[f"errors-{index}"] = measured_and_simulated(table.scored)
        body.append(_table_section(table, f"errors-{index}"))
    for index, overlay in enumerate(overlays):
        drawn = {"cdf": cdf_overlay, "load": load_overlay, "percentiles": percentile_errors}
        named = {f"overlay-{index}-{name}": draw(overlay) for name, draw in drawn.items()}
        figures |= named
        body.append(_section(f"{overlay.name}: request by request", "".join(map(_figure, named))))
    return PAGE.format(
        title="Validation",
        style=STYLE,
        plotly=get_plotlyjs(),
        body="\n".join(body),
        figures=script_json({key: json.loads(figure.to_json()) for key, figure in figures.items()}),
        config=script_json(CONFIG),
    )


def measured_and_simulated(scored: Sequence[Scored]) -> go.Figure:
    """Simulated over measured by measured value: 1 is exact, a colour a metric."""
    figure = a_figure(height=380)
    for index, (metric, rows) in enumerate(grouped(scored, "metric").items()):
        figure.add_scattergl(
            x=[each.fact.value for each in rows],
            y=[each.predicted / each.fact.value for each in rows],
            mode="markers",
            name=metric,
            marker={"size": 5, "color": COLOURS[index % len(COLOURS)], "opacity": 0.7},
            text=[f"{each.fact.model} on {each.fact.hardware}, {each.fact.conditions}" for each in rows],
            hovertemplate="%{text}<br>measured %{x:.4g}, simulated over measured %{y:.3g}",
        )
    figure.add_hline(y=1, line={"color": INK, "width": 1})
    figure.update_xaxes(type="log", title_text="measured, in seconds, tokens or tokens a second")
    figure.update_yaxes(type="log", title_text="simulated over measured")
    return figure


def _table_section(table: TableErrors, figure: str) -> str:
    reading = table.reading
    worst = "".join(f"<li>{escape(sentence(each))}</li>" for each in table.worst)
    left_out = "".join(
        f"<li>{len(rows):,}: {escape(reason.value)}</li>" for reason, rows in sorted(reading.skipped.items())
    )
    parts = [
        f"<p>{table.rows_scored:,} of {reading.rows:,} rows scored.</p>",
        *(_errors(table.scored, name) for name in GROUPS if table.scored),
        _figure(figure) if table.scored else "",
        f"<h2>Furthest off</h2><ul class=notes>{worst}</ul>" if worst else "",
        f"<h2>Left out</h2><ul class=notes>{left_out}</ul>" if left_out else "",
    ]
    return _section(f"{Path(reading.file).name}: {reading.kind}", "".join(parts))


def _errors(scored: Sequence[Scored], name: str) -> str:
    head = "".join(f"<th scope=col>{statistic}</th>" for statistic in STATISTICS)
    rows = "".join(
        f"<tr><th scope=row>{escape(first)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for first, *cells in error_rows(scored, name)
    )
    return f"<table><thead><tr><th scope=row>{name}</th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _figure(name: str) -> str:
    return f'<figure><div id="figure-{name}"></div></figure>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"
