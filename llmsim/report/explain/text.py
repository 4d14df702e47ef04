"""An explanation as text of 80 columns: a figure, its formula, and the formula with the numbers filled in."""

from collections.abc import Iterator
from textwrap import wrap

from llmsim.closed_form import Line
from llmsim.report.explain.explanation import Explanation
from llmsim.report.explain.lines import Section, Table
from llmsim.units import format_bytes, format_count, format_duration, format_percent

WIDTH = 80
LABEL_WIDTH = 40


def render(explanation: Explanation) -> str:
    """The whole explanation."""
    parts = [_wrapped(explanation.subject), *map(_wrapped, explanation.assumptions)]
    parts += ["\n".join(_section(section)) for section in explanation.sections]
    return "\n\n".join(parts)


def format_value(value: float | str | None, unit: str) -> str:
    """A figure with its unit, for people."""
    if value is None or isinstance(value, str):
        return value or "-"
    match unit:
        case "bytes":
            return format_bytes(value) if value else "0"
        case "s":
            return format_duration(value) if value else "0"
        case "FLOP" | "FLOP/s":
            return format_count(value, unit) if value else "0"
        case "tokens":
            return f"{value:,.0f}"
        case "1/s":
            return f"{value:,.3g} /s" if value < 1000 else f"{value:,.0f} /s"
        case "USD":
            return f"${value:.3g}" if value < 1000 else f"${value:,.0f}"
        case "share":
            return format_percent(value)
        case "FLOP/byte":
            return f"{value:,.3g} {unit}"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def _section(section: Section) -> Iterator[str]:
    yield section.title
    for line in section.lines:
        yield from line_text(line)
    for table in section.tables:
        yield ""
        yield from _table(table)
    for note in section.notes:
        yield ""
        yield _wrapped(note)


def line_text(line: Line) -> Iterator[str]:
    """A figure, and below it its formula twice: with names and with numbers."""
    value = ("no", "yes")[int(line.value)] if line.key == "fits" else format_value(line.value, line.unit)
    yield f"  {line.label:<{LABEL_WIDTH}}{value:>20}"
    if line.formula:
        yield from _indented(f"= {line.formula}")
        yield from _indented(f"= {line.numbers}")


def _table(table: Table) -> Iterator[str]:
    """Columns as wide as their widest cell, the first to the left."""
    cells = [[column.heading for column in table.columns]]
    cells += [
        [format_value(cell, column.unit) for cell, column in zip(row, table.columns, strict=True)] for row in table.rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    yield f"  {table.title}"
    for first, *others in cells:
        rest = "".join(f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield f"    {first:<{widths[0]}}{rest}".rstrip()


def _indented(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8, break_long_words=False)


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))
