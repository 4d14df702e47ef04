"""Questions and their answers in the terminal: 80 columns, colour not needed."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmsim.questions import Asked, Question
from llmsim.questions.answer import Contrast
from llmsim.report.explain.text import format_value, line_text
from llmsim.report.tables import UNKNOWN
from llmsim.units import format_percent

WIDTH = 80


def print_questions(questions: Sequence[Question], console: Console) -> None:
    """Print every question with its number and what its answer shows."""
    table = Table.grid(padding=(0, 2))
    for each in questions:
        table.add_row(Text(f"{each.number:>2}"), Text.assemble(each.text, "\n", (each.about, "dim")))
    console.print(table)


def print_answer(asked: Asked, console: Console) -> None:
    """Print a question, its short answer, arithmetic, simulation, pitfalls, and what to try next."""
    answer, subject = asked.answer, asked.subject
    console.print(Text(f"{asked.question.number}. {asked.question.text}", style="bold"))
    console.print(Text(f"{subject.described}."))
    for paragraph in answer.short:
        console.print()
        console.print(Text(paragraph))
    _heading(console, "Arithmetic: MFU 0.55, MBU 0.65 unless a line says otherwise")
    for line in answer.arithmetic:
        console.print(Text("\n".join(line_text(line))))
    _heading(console, "Closed form and simulation")
    console.print(_contrasts(answer.contrasts))
    _items(console, "Pitfalls", answer.pitfalls)
    _heading(console, "Now change this")
    for command in answer.commands:
        console.print(Text(f"{command.why}:"))
        console.print(Text(f"    {command.command}", style="cyan"), soft_wrap=True)
    _items(console, "Assumptions", [*subject.notes, *answer.notes])


def difference_text(contrast: Contrast) -> str:
    """The difference as per cent with its sign, as a factor where it is large, or a dash."""
    share = contrast.difference
    if share is None:
        return UNKNOWN
    if share >= 1:
        return f"{1 + share:.3g} x"
    return f"{'+' if share > 0 else ''}{format_percent(share)}" if abs(share) >= 0.0005 else "0 %"


def _contrasts(contrasts: Sequence[Contrast]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("quantity", width=20)
    for name, width in (("closed form", 9), ("simulated", 9), ("diff.", 7)):
        table.add_column(name, justify="right", width=width)
    table.add_column("why", width=23)
    for each in contrasts:
        values = (UNKNOWN if value is None else format_value(value, each.unit) for value in each[3:5])
        table.add_row(*map(Text, (each.quantity, *values, difference_text(each), each.why)))
    return table


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _items(console: Console, title: str, items: Sequence[str]) -> None:
    if not items:
        return
    _heading(console, title)
    table = Table.grid(padding=(0, 1))
    for item in items:
        table.add_row("-", Text(f"{item}."))
    console.print(table)
