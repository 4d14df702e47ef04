"""Readers of trace formats: one file a format, and its name in ``FORMATS``.

A reader turns a file into a request table. What it cannot read it refuses with file, line, value and what is allowed.
"""

from pathlib import Path
from typing import Protocol

from llmsim.errors import ScenarioError
from llmsim.workload.readers import azure, mooncake, plain
from llmsim.workload.table import RequestTable


class TraceFormat(Protocol):
    """What the file of a format offers."""

    NAME: str
    EXAMPLE: str
    """What the first line looks like."""

    def recognises(self, first_line: str) -> bool:
        """Whether a file that begins with this line has this format."""

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The first ``limit`` rows as a table with the file's own clock."""


FORMATS: tuple[TraceFormat, ...] = (azure, mooncake, plain)


def read_trace(path: Path, name: str, limit: int | None, skip_bad_rows: bool) -> RequestTable:
    """The requests of a trace file, at most the first ``limit`` rows; ``name`` is a format's, or "auto".

    Raises ScenarioError when the file is absent, empty, of no known format, or has a bad row.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            first_line = file.readline().strip()
        if not first_line:
            raise ScenarioError(f"{path}: the file has no first line; expected a trace ({_examples()})")
        for trace_format in FORMATS:
            if name == trace_format.NAME or (name == "auto" and trace_format.recognises(first_line)):
                return trace_format.read(path, limit, skip_bad_rows)
    except OSError as error:
        raise ScenarioError(f"{path}: the trace cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: the trace is not a text file in UTF-8") from None
    raise ScenarioError(f"{path}: unknown trace format: first line '{first_line[:80]}'; known are {_examples()}")


def _examples() -> str:
    return "; ".join(f"{each.NAME}: {each.EXAMPLE}" for each in FORMATS)
