"""The documents tell the truth: their files, commands and code run, print what they show, and name what exists.

In a document a block of ``toml`` or ``json`` after a file's name is that file, and a block of ``text`` is what the last
block before it that prints anything prints.
"""

import re
import shlex
import shutil
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import typer

from llmsim import cli
from llmsim.workload import Client, WorkloadSpec
from llmsim.workload.readers import FORMATS
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(\S+)`:\n\n```(?:toml|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|/bin/)llmsim (.+)$", re.MULTILINE)
FIRST_CELL = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", ["README.md", "docs/extending.md", "docs/workloads.md"])
def test_its_blocks_run_and_print_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    shutil.copytree(REPOSITORY / "scenarios", tmp_path / "scenarios")
    for file, content in NAMED.findall(text):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    printed = ""
    for language, block in BLOCK.findall(text):
        if language == "text":
            assert lines(printed) == lines(block), f"{name} shows something else than is printed:\n{printed}"
        elif language == "sh":
            assert all(cli.main(shlex.split(arguments)) == 0 for arguments in COMMAND.findall(block)), block
        elif language == "python":
            exec(compile(block, name, "exec"), {"__name__": "__main__"})
        printed = capsys.readouterr().out or printed


def lines(text: str) -> list[str]:
    """Lines without the spaces that tables end with."""
    return [line.rstrip() for line in text.strip().splitlines()]


def cells(section: str) -> set[str]:
    """What is in code quotes in the first column of the section's table."""
    found = README.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return {name for cell in FIRST_CELL.findall(found) for name in re.findall(r"`([^`]+)`", cell)}


def test_it_lists_every_command_with_options_that_exist() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert {cell.split()[1] for cell in cells("Commands")} == set(commands)
    shown = re.search(r"^\| `llmsim run .*$", README, re.MULTILINE)
    options = {option for parameter in commands["run"].params for option in parameter.opts if option.startswith("--")}
    assert shown and set(re.findall(r"--\w+", shown[0])) == options


def test_its_map_shows_the_whole_house() -> None:
    packages = {str(file.parent.relative_to(REPOSITORY)) for file in REPOSITORY.glob("llmsim/*/__init__.py")}
    modules = {str(file.relative_to(REPOSITORY)) for file in REPOSITORY.glob("llmsim/*.py")} - {"llmsim/__main__.py"}
    rooms = cells("How it is laid out")
    assert rooms >= packages | modules
    assert all((REPOSITORY / room).exists() for room in rooms)


def test_the_tests_it_names_are_there() -> None:
    named = re.findall(r"pytest (tests/\S+?)(?: -k (\w+))?`", README)
    assert named
    for path, word in named:
        files = [REPOSITORY / path, *(REPOSITORY / path).rglob("test_*.py")]
        names = [name for file in files if file.is_file() for name in re.findall(r"def (test_\w+)", file.read_text())]
        assert any(word in name for name in names), (path, word)


def test_ci_runs_its_test_command() -> None:
    with_tests = [block for language, block in BLOCK.findall(README) if language == "sh" and "pytest" in block]
    assert len(with_tests) == 1
    assert re.fullmatch(r"python3 -m venv \.venv && .* && \.venv/bin/pytest\n", with_tests[0])
    assert "README.md" in (REPOSITORY / ".ci" / "run").read_text()


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docs/extending.md", "docs/workloads.md"])
def test_its_links_lead_somewhere(name: str) -> None:
    document = REPOSITORY / name
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (document.parent / target).exists(), target


def test_workloads_lists_every_kind_format_and_key() -> None:
    text = (REPOSITORY / "docs" / "workloads.md").read_text(encoding="utf-8")
    named = {name for cell in FIRST_CELL.findall(text) for name in re.findall(r"`([^`]+)`", cell)}
    kinds = {get_args(kind.__annotations__["kind"])[0] for kind in get_args(get_args(WorkloadSpec)[0])}
    keys = {field.name for field in fields(Client)} - {"name"}
    assert named == kinds | {each.name for each in FORMATS} | keys
