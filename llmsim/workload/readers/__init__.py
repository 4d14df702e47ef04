"""Readers of trace formats: one file a format, and its name in ``FORMATS``.

A reader turns a file into a request table. What it cannot read it refuses with file, line, value and what is
allowed. Files may be packed (.gz, .zst, .bz2); those of columns may be Parquet.
"""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from llmsim.errors import ScenarioError
from llmsim.workload.readers.azure import AZURE
from llmsim.workload.readers.burstgpt import BURSTGPT
from llmsim.workload.readers.gateway import GATEWAY
from llmsim.workload.readers.mapping import ColumnMapping
from llmsim.workload.readers.mooncake import MOONCAKE
from llmsim.workload.readers.plain import PLAIN, write_trace
from llmsim.workload.readers.sharegpt import SHAREGPT, SHAREGPT_VLLM
from llmsim.workload.readers.text import first_line
from llmsim.workload.readers.vidur import VIDUR, VIDUR_LENGTHS
from llmsim.workload.readers.weka import WEKA
from llmsim.workload.table import Ints, RequestTable


class TraceFormat(Protocol):
    """A format of trace files."""

    @property
    def name(self) -> str:
        """The name a scenario gives it."""

    @property
    def example(self) -> str:
        """What a first line looks like."""

    @property
    def timed(self) -> bool:
        """Whether such a file says when requests arrive; if not all sessions begin at 0."""

    def recognises(self, first_line: str) -> float:
        """How well a file that begins with this line fits the format: 1 well, 0 not at all."""

    def read(self, path: Path, limit: int | None, skip_bad_rows: bool) -> RequestTable:
        """The first ``limit`` requests of a file, the earliest at 0."""


FORMATS: tuple[TraceFormat, ...] = (
    AZURE, BURSTGPT, MOONCAKE, VIDUR, VIDUR_LENGTHS, PLAIN, WEKA, GATEWAY, SHAREGPT, SHAREGPT_VLLM,
)  # fmt: skip


def format_of(path: Path, name: str = "auto") -> TraceFormat:
    """The format called ``name``, or that of the file if it is "auto".

    Raises ScenarioError when the file is absent or empty, or no known format begins like it.
    """
    with _faults_named(path):
        line = first_line(path)
    if not line:
        raise ScenarioError(f"{path}: the first line is empty; {_known()}")
    if name != "auto":
        named = next((each for each in FORMATS if each.name == name), None)
        if named is None:
            raise ScenarioError(f"{path}: unknown format '{name}'; allowed: auto, {', '.join(f.name for f in FORMATS)}")
        return named
    best = max(FORMATS, key=lambda each: each.recognises(line))
    if best.recognises(line):
        return best
    raise ScenarioError(f"{path}: no known trace format begins with '{line[:80]}'; {_known()}")


def read_trace(path: Path, form: TraceFormat, limit: int | None = None, skip_bad_rows: bool = False) -> RequestTable:
    """The requests of a trace file, at most the first ``limit``.

    Raises ScenarioError when the file cannot be read, has no row, or has a bad one that is not to be skipped.
    Warns of skipped and of unsorted rows, and of times that seem to be of another unit.
    """
    with _faults_named(path):
        return form.read(path, limit, skip_bad_rows)


def arrivals_of(path: Path, name: str = "auto") -> Ints:
    """When the requests of a trace arrive, in order, in nanoseconds from the first; bad rows are left out.

    A file that has not changed is read once. Raises ScenarioError as ``format_of`` and ``read_trace``.
    """
    with _faults_named(path):
        return _arrivals_of(path, name, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _arrivals_of(path: Path, name: str, changed_ns: int) -> Ints:
    arrival_ns = read_trace(path, format_of(path, name), skip_bad_rows=True).arrival_ns
    arrival_ns.flags.writeable = False
    return arrival_ns


@contextmanager
def _faults_named(path: Path) -> Iterator[None]:
    try:
        yield
    except ScenarioError:
        raise
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: the trace is not a text file in UTF-8") from None
    except csv.Error as error:
        raise ScenarioError(f"{path}: the trace is not a CSV file: {error}") from None
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ScenarioError(f"{path}: the trace cannot be read: {reason}") from None
    except ValueError as error:
        raise ScenarioError(f"{path}: the trace cannot be read: {error}") from None


def _known() -> str:
    return "known formats and their first lines:\n" + "\n".join(f"  {each.name}: {each.example}" for each in FORMATS)


__all__ = ["FORMATS", "ColumnMapping", "TraceFormat", "arrivals_of", "format_of", "read_trace", "write_trace"]
