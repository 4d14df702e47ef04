"""Runs what README and docs show, as their reader would: files, commands, code, and what each prints.

    python -m tools.run_documents [--write] [DOCUMENT ...]

names the blocks that show something else than is printed; ``--write`` puts what is printed in their place. Blocks:

- a block of ``toml``, ``json`` or ``csv`` after a file's name is that file;
- a block of ``sh`` or ``python`` is run, in a folder that holds ``scenarios/``; of the former the llmsim commands;
- a block of ``pycon`` is a session at the prompt, checked by doctest;
- a block of ``text`` is what the last block before it that prints anything prints, or, with a last line of …, its
  beginning;
- any other block is only shown.
"""

import argparse
import contextlib
import doctest
import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from llmsim import cli

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = tuple(
    str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md")))
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(\S+)`:\n\n```(?:toml|json|csv)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|/bin/)llmsim (.+)$", re.MULTILINE)
CONDITIONS = {"COLUMNS": "80", "LOKY_MAX_CPU_COUNT": "1"}
"""The width of what is printed, and studies in this process: starting others would take longer than the runs."""
MORE = "…"


class Shown(NamedTuple):
    """A block of ``text`` and what was printed before it."""

    start: int
    """Where the block's content begins in the document."""
    shown: str
    printed: str

    @property
    def expected(self) -> str:
        """What the block should hold: as many lines of what was printed as it shows, or all of them."""
        lines = [line.rstrip() for line in self.printed.strip("\n").splitlines()]
        shown = self.shown.splitlines()
        return "\n".join([*lines[: len(shown) - 1], MORE] if shown[-1] == MORE else lines) + "\n"


def run(text: str) -> Iterator[Shown]:
    """Run a document's blocks in the working directory, and give each block of ``text`` with what was printed.

    Raises AssertionError for a command that fails and for a session that goes otherwise.
    """
    for file, content in NAMED.findall(text):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(content, encoding="utf-8")
    printed, names = "", dict[str, Any]()
    for block in BLOCK.finditer(text):
        if block[1] == "text":
            yield Shown(block.start(2), block[2], printed)
        else:
            printed = _printed(block[1], block[2], names) or printed


def commands(block: str) -> list[list[str]]:
    """The arguments of each llmsim command of a shell block."""
    return [shlex.split(arguments) for arguments in COMMAND.findall(block.replace("\\\n", " "))]


@contextlib.contextmanager
def reader() -> Iterator[None]:
    """A new working directory with what the README's reader has, and the conditions of the run."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(REPOSITORY / "scenarios", Path(folder) / "scenarios")
        os.chdir(folder)
        os.environ.update(CONDITIONS)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def _printed(language: str, block: str, names: dict[str, Any]) -> str:
    """What a block prints on standard output; ``names`` are those of the document's sessions so far."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if language == "sh":
            for arguments in commands(block):
                assert cli.main(arguments) == 0, f"llmsim {shlex.join(arguments)}"
        elif language == "python":
            exec(compile(block, "document", "exec"), {"__name__": "__main__"})
        elif language == "pycon":
            _converse(block, names)
    return out.getvalue()


def _converse(session: str, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(session, names, "session", "document", 0)
    differences = io.StringIO()
    doctest.DocTestRunner().run(test, out=differences.write, clear_globs=False)
    names.update(test.globs)
    assert not differences.getvalue(), differences.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run documents; 1 when one shows something else than is printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*", default=DOCUMENTS)
    parser.add_argument("--write", action="store_true", help="put what is printed in the place of what is shown")
    given = parser.parse_args(arguments)
    status = 0
    for name in given.documents:
        path = REPOSITORY / name
        text = path.read_text(encoding="utf-8")
        with reader():
            stale = [shown for shown in run(text) if shown.shown != shown.expected]
        for shown in reversed(stale):
            print(f"{name}: shows something else than is printed:\n{shown.expected}")
            text = text[: shown.start] + shown.expected + text[shown.start + len(shown.shown) :]
        if stale and given.write:
            path.write_text(text, encoding="utf-8")
        status |= bool(stale) and not given.write
    return status


if __name__ == "__main__":
    raise SystemExit(main())
