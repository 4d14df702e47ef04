"""Draws the facts of real servers that ship with llmsim, from the whole tables of measured ones.

Usage: ``python tools/draw_validation_set.py FOLDER``, the folder holding ``measured.csv``, ``kernel_step_times.csv``,
``kv_capacity.csv`` and ``load_curve_llama31_8b_h100.csv``. Writes ``llmsim/validation/shipped/``.

The draw knows no prediction: strata of one source, hardware and model take turns until the table's share of the 300
facts is reached, each giving one of its rows at random (fixed seed). Rows keep the columns that say what was measured,
on what, and where it was published.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

SEED = 20_260
SHIPPED = Path(__file__).resolve().parent.parent / "llmsim" / "validation" / "shipped"


class Share(NamedTuple):
    """How many rows of a table are drawn, and what its strata are."""

    file: str
    rows: int
    strata: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Columns that neither say what was measured nor where it was published."""


SHARES = (
    Share("measured.csv", 200, ("source_id", "hardware", "model"), ("source_title", "notes", "run_id")),
    Share("kernel_step_times.csv", 55, ("system", "model", "phase")),
    Share("kv_capacity.csv", 20, ("gpu", "model"), ("notes",)),
    Share("load_curve_llama31_8b_h100.csv", 25, ("cfg",)),
)


def main(folder: Path) -> None:
    """Draw and write every table."""
    SHIPPED.mkdir(exist_ok=True)
    for share in SHARES:
        rows = eligible(share.file, pd.read_csv(folder / share.file, dtype=str, keep_default_na=False))
        chosen = rows.loc[drawn(rows, share)].drop(columns=list(share.left_out), errors="ignore")
        chosen.to_csv(SHIPPED / share.file, index=False, lineterminator="\n")
        print(f"{share.file}: {len(chosen)} of {len(rows)}")


def eligible(file: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows fit to be judged by: of the measured values those marked so, and maximum throughputs, which are not."""
    if file != "measured.csv":
        return rows
    return rows[(rows.core == "True") | rows.load_kind.str.startswith("offline (all")]


def drawn(rows: pd.DataFrame, share: Share) -> list[int]:
    """Indices of the rows drawn, ascending."""
    rng = np.random.default_rng(SEED)
    piles = [list(rng.permutation(group.index)) for _, group in rows.groupby(list(share.strata), sort=True)]
    chosen: list[int] = []
    while len(chosen) < share.rows and any(piles):
        chosen += [int(pile.pop()) for pile in piles if pile][: share.rows - len(chosen)]
    return sorted(chosen)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
