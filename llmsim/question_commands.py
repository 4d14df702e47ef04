"""The command ``ask``: questions people ask of a serving design, answered with numbers."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def ask(
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", help="Of the question; without it all are listed.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Catalogue name, or a path to a config.json.")] = None,
    accelerator: Annotated[str | None, typer.Option(help="Catalogue name, or a path to a .toml file.")] = None,
    html: Annotated[Path | None, typer.Option(help="HTML file to write the answer and its figures to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Answer a question with numbers: closed form, simulation beside it, pitfalls, what to try next."""
    from llmsim import questions

    if number is None:
        _list(as_json)
        return
    asked = questions.ask(number, model, accelerator)
    if html is not None:
        from llmsim.report.answer_page import write_answer

        write_answer(asked, html)
        print(f"Page: {html}", file=sys.stderr)
    if as_json:
        print(json.dumps(asked.as_dict(), allow_nan=False, ensure_ascii=False, indent=2))
        return
    from rich.console import Console

    from llmsim.report.answer_text import WIDTH, print_answer

    print_answer(asked, Console(width=WIDTH))


def _list(as_json: bool) -> None:
    from llmsim.questions import QUESTIONS

    if as_json:
        rows = [{"number": each.number, "question": each.text, "about": each.about} for each in QUESTIONS]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    from rich.console import Console

    from llmsim.report.answer_text import WIDTH, print_questions

    print_questions(QUESTIONS, Console(width=WIDTH))
