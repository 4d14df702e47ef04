"""A study as one HTML page that needs nothing else: its answer, its pictures, its table."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from llmsim.report.html import CONFIG, script_json
from llmsim.report.page import PAGE, STYLE
from llmsim.report.study_text import cell_text

if TYPE_CHECKING:
    import pandas as pd


class Picture(NamedTuple):
    """A figure of a page."""

    title: str
    caption: str
    """How to read it."""
    figure: go.Figure


def write_study(
    kind: str, title: str, answers: Sequence[str], pictures: Sequence[Picture], table: "pd.DataFrame", path: Path
) -> None:
    """Write the page of a study; missing folders are made. The same study gives the same bytes."""
    sentences = "".join(f"<p>{escape(answer)}</p>" for answer in answers)
    figures = "".join(
        f"<section><h2>{escape(each.title)}</h2><figure><figcaption>{escape(each.caption)}</figcaption>"
        f'<div id="figure-{number}"></div></figure></section>'
        for number, each in enumerate(pictures)
    )
    body = (
        f"<header><p class=kind>llmsim {escape(kind)}</p><h1>{escape(title)}</h1>"
        f'<div class="verdict none">{sentences}</div></header>{figures}'
        f"<section><h2>Table</h2>{_table(table)}</section>"
    )
    page = PAGE.format(
        title=escape(title),
        style=STYLE,
        plotly=get_plotlyjs(),
        body=body,
        figures=script_json({str(n): json.loads(each.figure.to_json()) for n, each in enumerate(pictures)}),
        config=script_json(CONFIG),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", newline="\n")


def _table(frame: "pd.DataFrame") -> str:
    head = "".join(f"<th scope=col>{escape(str(column))}</th>" for column in frame.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell_text(value))}</td>' for value in row)}</tr>"
        for row in frame.itertuples(index=False)
    )
    return f'<div style="overflow-x:auto"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
