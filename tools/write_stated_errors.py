"""Writes the errors that estimates state, from the facts that ship with llmsim.

Usage: ``python -m tools.write_stated_errors``. Simulates the shipped facts of servers (a minute) and writes
``llmsim/validation/stated_errors.csv``: medians of absolute errors by kind of server and figure.
"""

import csv
from collections import defaultdict
from typing import Any

import numpy as np

from llmsim.validation.compare import Scored, validate
from llmsim.validation.kernel_steps import KIND as STEPS
from llmsim.validation.stated import FIGURES, FILE, ServerKind, kind_of_server


def main() -> None:
    """Score the shipped facts and write the table."""
    errors: dict[tuple[ServerKind, str], list[float]] = defaultdict(list)
    for table in validate():
        for scored in table.scored if table.reading.kind != STEPS else ():
            for figure in (name for name, metrics in FIGURES.items() if scored.fact.metric in metrics):
                for kind in set(_kind(scored).wider()):
                    errors[kind, figure].append(abs(scored.error))
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*ServerKind._fields, "figure", "facts", "median"))
        for (kind, figure), found in sorted(errors.items()):
            writer.writerow((*kind, figure, len(found), f"{float(np.median(found)):.3f}"))


def _kind(scored: Scored) -> ServerKind:
    case: Any = scored.fact.case
    deployment = case.engine.pool().deployment()
    return kind_of_server(deployment.accelerator.name, deployment.weight_dtype, deployment.model.moe is not None)


if __name__ == "__main__":
    main()
