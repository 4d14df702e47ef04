"""The documents tell the truth: their files, commands and code run, print what they show, and name what exists.

``tools/run_documents.py`` says what is run of a document, and writes it anew when what is printed has changed.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import typer

from llmsim import cli
from llmsim.validation.tables import read_table, shipped
from llmsim.workload import Client, WorkloadSpec
from llmsim.workload.readers import FORMATS
from tests.conftest import REPOSITORY
from tools.run_documents import BLOCK, DOCUMENTS, commands, reader, run
from tools.write_validation_figures import BEGIN, END, FEWEST, label

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
FIRST_CELL = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_its_blocks_run_and_print_what_it_shows(name: str) -> None:
    with reader():
        for shown in run(text_of(name)):
            told = f"shows something else than is printed; python -m tools.run_documents --write {name}"
            assert shown.shown == shown.expected, f"{name}: {told}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_that_are_only_shown_have_options_that_exist(name: str) -> None:
    known = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    for language, block in BLOCK.findall(text_of(name)):
        for command, *arguments in commands(block) if language == "console" else ():
            options = {option for parameter in known[command].params for option in parameter.opts}
            assert {each.partition("=")[0] for each in arguments if each.startswith("--")} <= options, block


@pytest.mark.parametrize("name", [*DOCUMENTS, "CHANGELOG.md"])
def test_its_links_lead_somewhere(name: str) -> None:
    document = REPOSITORY / name
    for target, anchor in re.findall(r"\]\(([^)#]*)(#[^)]+)?\)", text_of(name)):
        assert target.startswith("https://") or (document.parent / target).exists(), target
        assert not anchor or anchor in anchors(document.parent / target if target else document), (target, anchor)


def anchors(document: Path) -> set[str]:
    """Where links into a document lead: its titles, as GitHub makes anchors of them."""
    titles = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {"#" + re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_document_is_listed() -> None:
    listed = text_of("docs/README.md")
    others = set(DOCUMENTS) - {"README.md", "docs/README.md"}
    assert others == {f"docs/{target}" for target in re.findall(r"\]\(([^)]+)\)", listed)}


def cells(name: str) -> set[str]:
    """What is in code quotes in the first column of a document's tables."""
    return {found for cell in FIRST_CELL.findall(text_of(name)) for found in re.findall(r"`([^`]+)`", cell)}


def test_every_command_is_listed_with_options_that_exist() -> None:
    known = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert {cell.split()[1] for cell in cells("docs/commands.md")} == set(known)
    shown = re.search(r"^\| `llmsim run .*$", text_of("docs/commands.md"), re.MULTILINE)
    options = {option for parameter in known["run"].params for option in parameter.opts if option.startswith("--")}
    assert shown and set(re.findall(r"--\w+", shown[0])) == options


def test_the_map_shows_the_whole_house() -> None:
    packages = {str(file.parent.relative_to(REPOSITORY)) for file in REPOSITORY.glob("llmsim/*/__init__.py")}
    modules = {str(file.relative_to(REPOSITORY)) for file in REPOSITORY.glob("llmsim/*.py")} - {"llmsim/__main__.py"}
    rooms = cells("docs/layout.md")
    assert rooms >= packages | modules
    assert all((REPOSITORY / room).exists() for room in rooms)


def test_the_tests_that_are_named_are_there() -> None:
    named = re.findall(r"pytest (tests/\S+?)(?: -k (\w+))?`", text_of("docs/validation.md"))
    assert named
    for path, word in named:
        files = [REPOSITORY / path, *(REPOSITORY / path).rglob("test_*.py")]
        names = [name for file in files if file.is_file() for name in re.findall(r"def (test_\w+)", file.read_text())]
        assert any(word in name for name in names), (path, word)


def test_validation_figures_are_of_the_facts_that_ship() -> None:
    """As many measurements of each figure as the tables hold; without simulating them."""
    shown = text_of("docs/validation.md").partition(BEGIN)[2].partition(END)[0]
    for part, path in zip(re.split(r"^\*\*", shown, flags=re.MULTILINE)[1:], shipped(), strict=True):
        reading = read_table(path)
        metrics = [label(fact.metric) for fact in reading.facts]
        held = {metric: metrics.count(metric) for metric in metrics if metrics.count(metric) >= FEWEST}
        counts = dict(re.findall(r"^\| (\D[^|]*) \| (\d+) \|", part, re.MULTILINE))
        assert path.name in part
        assert {metric: int(count) for metric, count in counts.items()} == held
    assert README.partition(BEGIN)[2].partition(END)[0].count("\n|") > 2


def test_ci_runs_the_test_command() -> None:
    with_tests = [block for language, block in BLOCK.findall(README) if language == "sh" and "pytest" in block]
    assert len(with_tests) == 1
    assert re.fullmatch(r"python3 -m venv \.venv && .* && \.venv/bin/pytest\n", with_tests[0])
    assert "README.md" in (REPOSITORY / ".ci" / "run").read_text()


def test_workloads_lists_every_kind_format_and_key() -> None:
    kinds = {get_args(kind.__annotations__["kind"])[0] for kind in get_args(get_args(WorkloadSpec)[0])}
    keys = {field.name for field in fields(Client)} - {"name"}
    assert cells("docs/workloads.md") == kinds | {each.name for each in FORMATS} | keys
