"""What readers share: rows that are good, with faults named by line, and the table made of them."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmsim.errors import ScenarioError
from llmsim.workload.stamps import unit_doubt
from llmsim.workload.table import Ints, RequestTable

_Raw = TypeVar("_Raw")
_Row = TypeVar("_Row")


def good_rows(
    path: Path,
    numbered: Iterable[tuple[int, _Raw]],
    convert: Callable[[_Raw], _Row],
    limit: int | None,
    skip_bad_rows: bool,
) -> Iterator[_Row]:
    """The first ``limit`` rows that ``convert`` takes; rows come with their line in the file.

    Raises ScenarioError at the first that it refuses with a ValueError, or, with ``skip_bad_rows``, when it
    refused all. Warns of how many were skipped.
    """
    kept, skipped, first_fault = 0, 0, ""
    for line, raw in numbered:
        if kept == limit:
            break
        try:
            row = convert(raw)
        except ValueError as error:
            first_fault = first_fault or f"{path} line {line}: {error}"
            if not skip_bad_rows:
                raise ScenarioError(f'{first_fault}; to leave such rows out: on_bad_rows = "skip"') from None
            skipped += 1
            continue
        kept += 1
        yield row
    if not kept:
        raise ScenarioError(first_fault or f"{path}: the trace has no rows")
    if skipped:
        warnings.warn(f"{path}: {skipped} bad rows skipped, {kept} kept; the first: {first_fault}", stacklevel=2)


def trace_table(
    path: Path, arrival_ns: Ints, recorded: NDArray[np.bool_] | None = None, **columns: Any
) -> RequestTable:
    """The table of a trace, the earliest arrival at 0.

    Warns when rows are not in order of arrival, and when their times seem to be of another unit; ``recorded`` marks
    the rows whose time is the file's, None: all.
    """
    own = arrival_ns if recorded is None else arrival_ns[recorded]
    warn_of_disorder(path, own)
    if doubt := unit_doubt(own):
        warnings.warn(f"{path}: {doubt}", stacklevel=2)
    return RequestTable.build(arrival_ns=arrival_ns - arrival_ns.min(), **columns)


def warn_of_disorder(path: Path, arrival_ns: Ints) -> None:
    """Warn when rows are not in order of arrival."""
    if backwards := int(np.sum(np.diff(arrival_ns) < 0)):
        warnings.warn(f"{path}: {backwards} rows are earlier than the row before; sorted by arrival", stacklevel=3)


def cut_to_blocks(prompt_tokens: Ints, block_counts: Ints, block_tokens: int) -> Ints:
    """Tokens in each block of all prompts, one after another: all are whole but each prompt's last."""
    sizes = np.full(int(block_counts.sum()), block_tokens, np.int64)
    has_blocks = block_counts > 0
    last = np.cumsum(block_counts)[has_blocks] - 1
    sizes[last] = (prompt_tokens[has_blocks] - 1) % block_tokens + 1
    return sizes
