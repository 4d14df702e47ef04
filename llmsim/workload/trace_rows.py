"""Lengths drawn from the rows of a trace, which keeps what prompts and outputs have to do with each other."""

from dataclasses import replace
from pathlib import Path
from typing import Self

from numpy.random import Generator

from llmsim.specification import specification
from llmsim.workload.readers import ColumnMapping, format_of, read_trace
from llmsim.workload.table import Ints


@specification
class TraceRows:
    """A trace whose rows are drawn at random, with replacement."""

    path: Path
    """The trace."""
    format: str = "auto"
    """Format of the file; "auto": by its first line."""
    columns: ColumnMapping | None = None
    """Which column holds what, in a file of one's own."""

    def located(self, folder: Path) -> Self:
        """The same with its path as seen from the working directory. Raises ValueError when there is no file."""
        if not (path := folder / self.path).is_file():
            raise ValueError(f"path = '{path}': there is no such file")
        return replace(self, path=path)

    def draw(self, count: int, rng: Generator) -> tuple[Ints, Ints]:
        """Prompt and output tokens of ``count`` rows. Raises ScenarioError when the file cannot be read.

        Rows that are no requests are left out, with a warning.
        """
        form = self.columns.format() if self.columns is not None else format_of(self.path, self.format)
        table = read_trace(self.path, form, skip_bad_rows=True)
        rows = rng.integers(len(table), size=count)
        return table.prompt_tokens[rows], table.output_tokens[rows]
