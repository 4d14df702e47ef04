"""Simulates the facts of real servers that ship with llmsim, and writes the errors into validation.md and README.

    python -m tools.write_validation_figures

The figures stand between two comments of each document and nowhere else. It takes a minute.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from llmsim.report.tables import METRIC_NAMES
from llmsim.validation.compare import Scored, TableErrors, grouped, statistics, validate

REPOSITORY = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures of llmsim validate -->", "<!-- end of figures -->"
FEWEST = 5
"""Measurements that a figure needs to be a row."""
POOLED = {
    "time of an iteration, kernels alone": ("decode_step_mean", "prefill_step_mean", "mixed_step_mean"),
    "TPOT, mean": ("tpot_mean",),
    "TTFT, mean": ("ttft_mean",),
    "output tokens a second": ("output_throughput_mean",),
}
"""Rows of the README: metrics of all tables together."""
HEAD = "| figure | measurements | median error | 90 % within | bias |\n|---|---|---|---|---|"


def whole(tables: list[TableErrors]) -> str:
    """Every figure with enough measurements, table by table, and what was scored."""
    scored, given = sum(table.rows_scored for table in tables), sum(table.reading.rows for table in tables)
    parts = [f"{scored} of {given} rows can be simulated."]
    for table in tables:
        reading = table.reading
        left_out = ", ".join(f"{reason.value} ({len(each)})" for reason, each in sorted(reading.skipped.items()))
        told = f"{table.rows_scored} of {reading.rows} rows" + (f"; left out: {left_out}" if left_out else "")
        lines = list(filter(None, (row(label(each), rows) for each, rows in grouped(table.scored, "metric").items())))
        parts.append(f"**{reading.kind}** (`{Path(reading.file).name}`): {told}.")
        parts += ["\n".join([HEAD, *lines])] if lines else []
    return "\n\n".join(parts)


def pooled(tables: list[TableErrors]) -> str:
    """The README's few rows."""
    scored = [each for table in tables for each in table.scored]
    lines = [row(name, [each for each in scored if each.fact.metric in metrics]) for name, metrics in POOLED.items()]
    return "\n".join([HEAD, *filter(None, lines)])


def row(name: str, scored: Iterable[Scored]) -> str:
    """A row of Markdown; empty for too few measurements."""
    errors = list(scored)
    if len(errors) < FEWEST:
        return ""
    found = statistics(errors)
    median, within, bias = (100 * found[key] for key in ("median", "p90", "bias"))
    return f"| {name} | {len(errors)} | {median:.0f} % | {within:.0f} % | {bias:+.0f} % |"


def label(metric: str) -> str:
    """A metric of a table in words."""
    name, _, statistic = metric.rpartition("_")
    return f"{METRIC_NAMES.get(name, name.replace('_', ' '))}, {statistic}"


def put(document: Path, figures: str) -> None:
    """Write the figures between the comments of a document."""
    text = document.read_text(encoding="utf-8")
    found = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{figures}\n{END}", text, flags=re.DOTALL)
    document.write_text(found, encoding="utf-8")


def main() -> None:
    """Validate and write."""
    tables = validate()
    put(REPOSITORY / "docs" / "validation.md", whole(tables))
    put(REPOSITORY / "README.md", pooled(tables))


if __name__ == "__main__":
    main()
