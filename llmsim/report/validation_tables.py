"""Errors against measured servers in the terminal, and calibrations: what was scored, how far off, and what was not."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmsim.validation.compare import Scored, TableErrors, grouped, statistics
from llmsim.validation.fitting import Calibration

STATISTICS = ("n", "median", "mean", "p90", "bias")
GROUPS = ("metric", "source", "hardware", "model")
SHOWN = 5
"""Worst rows printed of each table."""


def print_errors(tables: Sequence[TableErrors], console: Console) -> None:
    """Print each table's errors by metric, source, hardware and model, its worst rows, and what was left out."""
    for each in tables:
        reading = each.reading
        console.print(Text(f"{reading.file}: {reading.kind}", style="bold"))
        console.print(f"{each.rows_scored:,} of {reading.rows:,} rows scored")
        for name in GROUPS:
            if each.scored:
                console.print(error_table(each.scored, name))
        for worst in each.worst[:SHOWN]:
            console.print(Text("- " + sentence(worst)))
        for reason, rows in sorted(reading.skipped.items()):
            console.print(Text(f"- left out: {len(rows):,}, {reason.value}", style="dim"))
        console.print()


def error_table(scored: Sequence[Scored], name: str) -> Table:
    """Errors by an attribute of their fact: a row a value."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(name)
    for statistic in STATISTICS:
        table.add_column(statistic, justify="right", no_wrap=True)
    for row in error_rows(scored, name):
        table.add_row(*row)
    return table


def error_rows(scored: Sequence[Scored], name: str) -> list[list[str]]:
    """The cells of ``error_table``."""
    found = {key: statistics(rows) for key, rows in grouped(scored, name).items()}
    return [
        [
            key or "unknown",
            f"{values['n']:,}",
            *(f"{values[each]:.1%}" for each in STATISTICS[1:4]),
            f"{values['bias']:+.1%}",
        ]
        for key, values in found.items()
    ]


def sentence(scored: Scored) -> str:
    """A row that is off, in a sentence."""
    fact = scored.fact
    return (
        f"{fact.metric} {scored.error:+.0%} (measured {fact.value:.4g}, simulated {scored.predicted:.4g}): "
        f"{fact.model} on {fact.hardware}, {fact.conditions}; bound by {scored.diagnosis}"
    )


def print_calibration(calibration: Calibration, console: Console) -> None:
    """Print what a calibration changed, and what it is worth."""
    console.print(
        f"{calibration.points} measurements; error {calibration.before:.1%} before, {calibration.after:.1%} "
        "after, on measurements left out of the fit"
    )
    for name, move in calibration.fitted.items():
        console.print(Text(f"- {name}: {move}"))
    if calibration.refused:
        console.print(Text(f"Not identified, left as they are: {', '.join(calibration.refused)}.", style="dim"))
