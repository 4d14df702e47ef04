"""The summary of a run in the terminal: answers first, then the numbers; 80 columns, colour not needed."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmsim.report.tables import (
    STATISTICS,
    Rows,
    cost_rows,
    latency_rows,
    pool_rows,
    run_rows,
    throughput_rows,
    use_rows,
)
from llmsim.report.verdict import judge
from llmsim.results.results import Results

STYLES = {"met": "bold green", "missed": "bold red", "none": "bold"}


def print_summary(results: Results, console: Console) -> None:
    """Print the verdict, the latency table, and throughput, use, cost and assumptions."""
    verdict, summary = judge(results), results.summary()
    console.print(Text(results.facts.scenario, style="bold"))
    console.print(Text(verdict.headline, style=STYLES[verdict.status]))
    for sentence in verdict.targets:
        _print_item(console, sentence)
    console.print(Text(verdict.binding))
    console.print(Text(verdict.stability))
    if verdict.confidence:
        console.print(Text(verdict.confidence))
    console.print()
    console.print(latency_table(results))
    for rows in (throughput_rows(summary), use_rows(summary), cost_rows(summary)):
        console.print()
        console.print(_pairs(rows))
    console.print()
    console.print(_pairs(pool_rows(results.facts) + run_rows(results.facts)))
    if results.facts.notes:
        console.print()
        console.print(Text("Assumptions", style="bold"))
        for note in results.facts.notes:
            _print_item(console, note)


def latency_table(results: Results) -> Table:
    """The latencies of a run as a table: a row a metric, a column a statistic."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("Latency")
    for statistic in STATISTICS:
        table.add_column(statistic, justify="right", no_wrap=True)
    for name, _, cells in latency_rows(results.summary()):
        table.add_row(Text(name), *(Text(cell) for cell in cells))
    return table


def _pairs(rows: Rows) -> Table:
    """Names and values side by side; a value that does not fit goes on below itself."""
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=24, style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _print_item(console: Console, sentence: str) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_row("-", Text(sentence))
    console.print(table)
