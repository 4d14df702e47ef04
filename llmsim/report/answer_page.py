"""A question and its answer as one HTML page that needs nothing else."""

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from llmsim.closed_form import Line
from llmsim.questions import Asked
from llmsim.questions.answer import Answer, Contrast, Picture
from llmsim.report.answer_text import difference_text
from llmsim.report.explain.text import format_value
from llmsim.report.html import CONFIG, script_json
from llmsim.report.page import PAGE, STYLE
from llmsim.report.style import MUTED, a_figure, line
from llmsim.report.tables import UNKNOWN

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d3a9b", "#8d99a5")


def write_answer(asked: Asked, path: Path) -> None:
    """Write the page of an answer; missing folders are made. The same answer gives the same bytes."""
    answer, question = asked.answer, asked.question
    figures = {str(number): draw(each) for number, each in enumerate(answer.pictures)}
    short = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in answer.short)
    body = (
        f"<header><p class=kind>llmsim ask {question.number}: {escape(asked.subject.described)}</p>"
        f'<h1>{escape(question.text)}</h1><div class="verdict none">{short}</div></header>'
        + "".join(_picture(str(number), each) for number, each in enumerate(answer.pictures))
        + _section("Closed form and simulation", _contrasts(answer.contrasts))
        + _section("Arithmetic", _arithmetic(answer.arithmetic))
        + _section("Pitfalls", _list(answer.pitfalls))
        + _section("Now change this", _commands(answer))
        + _section("Assumptions", _list((*asked.subject.notes, *answer.notes, "MFU 0.55 and MBU 0.65 in closed forms")))
    )
    page = PAGE.format(
        title=escape(question.text),
        style=STYLE,
        plotly=get_plotlyjs(),
        body=body,
        figures=script_json({key: json.loads(figure.to_json()) for key, figure in figures.items()}),
        config=script_json(CONFIG),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8", newline="\n")


def draw(picture: Picture) -> go.Figure:
    """The figure of plain series: one colour each; dashed verticals at places worth marking."""
    figure = a_figure(height=380)
    for each, colour in zip(picture.series, COLOURS, strict=False):
        if each.kind == "bars":
            figure.add_bar(x=each.x, y=each.y, name=each.name, marker={"color": colour})
        else:
            mode = "lines" if each.kind == "line" else "markers"
            figure.add_scatter(
                x=each.x,
                y=each.y,
                name=each.name,
                mode=mode,
                line=line(colour, 2.0),
                marker={"color": colour, "size": 9},
            )
    for place, text in picture.marks:
        figure.add_vline(x=place, line={"color": MUTED, "dash": "dash", "width": 1})
        at = math.log10(place) if picture.log_x else place  # plotly places texts, unlike lines, by the logarithm
        figure.add_annotation(x=at, y=1, yref="paper", yanchor="bottom", text=text, showarrow=False)
    figure.update_xaxes(title_text=picture.x_label, **_axis([each.x for each in picture.series], picture.log_x))
    figure.update_yaxes(title_text=picture.y_label, **_axis([each.y for each in picture.series], picture.log_y))
    return figure


def _axis(values: Sequence[Sequence[float] | Sequence[str]], log: bool) -> dict[str, Any]:
    """The kind of an axis and its ticks: on a logarithmic one 1, 2 and 5 of each decade, or 1 where there are many."""
    numbers = [each for series in values for each in series if not isinstance(each, str)]
    if not numbers:
        return {"type": "category"}
    axis = {"type": "linear", "tickformat": ",.12~g", "hoverformat": ".4g"}
    if not log:
        return axis
    low, high = math.log10(min(numbers)), math.log10(max(numbers))
    steps = (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = [step * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for step in steps]
    return {**axis, "type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.12g}" for tick in ticks]}


def _picture(name: str, picture: Picture) -> str:
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return _section(picture.title, f'<figure>{caption}<div id="figure-{name}"></div></figure>')


def _contrasts(contrasts: tuple[Contrast, ...]) -> str:
    head = "".join(f"<th scope=col>{name}</th>" for name in ("closed form", "simulated", "difference"))
    rows = []
    for each in contrasts:
        values = (UNKNOWN if value is None else format_value(value, each.unit) for value in each[3:5])
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (*values, difference_text(each)))
        rows.append(f"<tr><th scope=row>{escape(each.quantity)}</th>{cells}<td class=why>{escape(each.why)}</td></tr>")
    return f"<table><thead><tr><th></th>{head}<th class=why>why</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _arithmetic(lines: tuple[Line, ...]) -> str:
    rows = "".join(
        f"<tr><th scope=row>{escape(each.label)}</th><td>{escape(format_value(each.value, each.unit))}</td>"
        f"<td class=why>{escape(each.formula)}<br><span class=numbers>{escape(each.numbers)}</span></td></tr>"
        for each in lines
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _commands(answer: Answer) -> str:
    return "".join(f"<p>{escape(each.why)}:</p><pre>{escape(each.command)}</pre>" for each in answer.commands)


def _list(items: tuple[str, ...]) -> str:
    return f"<ul class=notes>{''.join(f'<li>{escape(each)}</li>' for each in items)}</ul>"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"
