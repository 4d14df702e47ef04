"""The commands of ``llmsim trace``: what a trace is like, and traces in llmsim's own format."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmsim.errors import ScenarioError

if TYPE_CHECKING:
    from llmsim.workload.readers import ColumnMapping

trace_app = typer.Typer(
    help="Look at recorded workloads, and convert them.", no_args_is_help=True, rich_markup_mode=None
)

TracePath = Annotated[Path, typer.Argument(help="Trace file: CSV, JSON lines or Parquet; may be .gz, .zst or .bz2.")]
Format = Annotated[str, typer.Option("--format", help="Format of the file; auto: by its first line.")]
TimeColumn = Annotated[str | None, typer.Option("--time-col", help="Column or key of the arrival.")]
TimeUnit = Annotated[str, typer.Option("--time-unit", help="s, ms, us, ns, or iso.")]
InColumn = Annotated[str | None, typer.Option("--in-col", help="Column of the prompt tokens.")]
OutColumn = Annotated[str | None, typer.Option("--out-col", help="Column of the output tokens.")]
SessionColumn = Annotated[str | None, typer.Option("--session-col", help="Column of the conversation.")]
CachedColumn = Annotated[str | None, typer.Option("--cached-col", help="Column of cached prompt tokens.")]
PriorityColumn = Annotated[str | None, typer.Option("--priority-col", help="Column of the priority.")]
ModelColumn = Annotated[str | None, typer.Option("--model-col", help="Column of the model, a client each.")]
_COLUMN_OPTIONS = {
    "time": "time_col",
    "prompt_tokens": "in_col",
    "output_tokens": "out_col",
    "session": "session_col",
    "cached_tokens": "cached_col",
    "priority": "priority_col",
    "model": "model_col",
}
"""Option of each field of a column mapping."""
Requests = Annotated[int | None, typer.Option(min=1, help="Only the first so many rows.")]


@trace_app.command()
def describe(
    context: typer.Context,
    path: TracePath,
    form: Format = "auto",
    time_col: TimeColumn = None,
    time_unit: TimeUnit = "s",
    in_col: InColumn = None,
    out_col: OutColumn = None,
    session_col: SessionColumn = None,
    cached_col: CachedColumn = None,
    priority_col: PriorityColumn = None,
    model_col: ModelColumn = None,
    requests: Requests = None,
    html: Annotated[Path | None, typer.Option(help="HTML file to write figures and pictures to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Print rate, burstiness, lengths, shared prefixes, sessions and oddities of a trace."""
    from llmsim.workload import describe as facts

    columns = _mapping(context.params)
    recorded = facts.read_recorded(path, form, columns, requests)
    description = facts.describe(recorded)
    if html is not None:
        from llmsim.report.trace_page import write_trace_page

        write_trace_page(path.name, recorded, description, html)
        typer.echo(f"Page: {html}", err=True)
    if as_json:
        print(json.dumps(asdict(description), allow_nan=False, ensure_ascii=False, indent=2))
    else:
        from llmsim.report.trace_text import trace_text

        print(trace_text(path.name, description))


@trace_app.command()
def convert(
    context: typer.Context,
    path: TracePath,
    out: Annotated[Path, typer.Argument(help="CSV file to write, or Parquet if it ends in .parquet.")],
    form: Format = "auto",
    time_col: TimeColumn = None,
    time_unit: TimeUnit = "s",
    in_col: InColumn = None,
    out_col: OutColumn = None,
    session_col: SessionColumn = None,
    cached_col: CachedColumn = None,
    priority_col: PriorityColumn = None,
    model_col: ModelColumn = None,
    requests: Requests = None,
) -> None:
    """Write a trace in llmsim's own format; bad rows are left out and counted."""
    from llmsim.workload.describe import read_recorded
    from llmsim.workload.readers import write_trace

    columns = _mapping(context.params)
    recorded = read_recorded(path, form, columns, requests)
    write_trace(recorded.table, out)
    for note in recorded.notes:
        typer.echo(f"Warning: {note}", err=True)
    if not recorded.timed:
        typer.echo("Warning: the file has no times of arrival; all sessions begin at 0", err=True)
    typer.echo(f"{len(recorded.table):,} requests: {out}", err=True)


def _mapping(options: dict[str, Any]) -> "ColumnMapping | None":
    """The columns of one's own file; None when none is named. Raises ScenarioError when one is missing or wrong."""
    given = {field: options[option] for field, option in _COLUMN_OPTIONS.items() if options[option] is not None}
    if not given:
        return None
    if not {"prompt_tokens", "output_tokens"} <= given.keys():
        raise ScenarioError("columns of one's own need both --in-col and --out-col")

    from llmsim.workload.readers import ColumnMapping
    from llmsim.workload.readers.mapping import TIME_UNITS

    if (unit := options["time_unit"]) not in TIME_UNITS:
        raise ScenarioError(f"--time-unit is {unit!r}; allowed: {', '.join(TIME_UNITS)}")
    return ColumnMapping(time_unit=unit, **given)
