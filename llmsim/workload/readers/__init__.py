"""Readers of trace formats: one file a format, and its name in ``FORMATS``.

A reader turns a file into a request table. What it cannot read it refuses with file, line, value and what is
allowed.
"""

import csv
from pathlib import Path
from typing import Protocol

from llmsim.errors import ScenarioError
from llmsim.workload.readers.azure import AZURE
from llmsim.workload.readers.burstgpt import BURSTGPT
from llmsim.workload.readers.mooncake import MOONCAKE
from llmsim.workload.readers.plain import PLAIN
from llmsim.workload.readers.vidur import VIDUR
from llmsim.workload.table import RequestTable


class TraceFormat(Protocol):
    """A format of trace files."""

    @property
    def name(self) -> str:
        """The name a scenario gives it."""

    @property
    def example(self) -> str:
        """What a first line looks like."""

    def recognises(self, first_line: str) -> bool:
        """Whether a file that begins with this line has, or nearly has, this format."""

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The first ``limit`` requests of a file, the earliest at 0."""


FORMATS: tuple[TraceFormat, ...] = (AZURE, BURSTGPT, MOONCAKE, VIDUR, PLAIN)


def read_trace(path: Path, name: str, limit: int | None, skip_bad_rows: bool) -> RequestTable:
    """The requests of a trace file, at most the first ``limit``; ``name`` is a format's, or "auto".

    Raises ScenarioError when the file is absent, empty, of no known format, or has a bad row that is not to
    be skipped. Warns of skipped and of unsorted rows.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            first_line = file.readline().strip()
        if not first_line:
            raise ScenarioError(f"{path}: the first line is empty; {_known()}")
        for each in FORMATS:
            if name == each.name or (name == "auto" and each.recognises(first_line)):
                return each.read(path, limit, skip_bad_rows)
    except OSError as error:
        raise ScenarioError(f"{path}: the trace cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: the trace is not a text file in UTF-8") from None
    except csv.Error as error:
        raise ScenarioError(f"{path}: the trace is not a CSV file: {error}") from None
    raise ScenarioError(f"{path}: no known trace format begins with '{first_line[:80]}'; {_known()}")


def _known() -> str:
    return "known formats and their first lines:\n" + "\n".join(f"  {each.name}: {each.example}" for each in FORMATS)
