"""The command line. Standard output holds results only; progress, notices and faults go to standard error.

Exit status: 0 done, 1 failed, 2 the scenario or the arguments are wrong, 130 interrupted.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmsim.errors import ScenarioError, SimulationError
from llmsim.question_commands import ask
from llmsim.study_commands import add_commands, print_replications
from llmsim.trace_commands import trace_app

if TYPE_CHECKING:
    from llmsim.results.results import Results

app = typer.Typer(
    help="Simulate LLM serving: from a scenario to latencies, GPUs and cost, with the reason.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(trace_app, name="trace")


class Shelf(StrEnum):
    """What the catalogue holds: facts in files, and the policies there are."""

    accelerators = "accelerators"
    models = "models"
    workloads = "workloads"
    schedulers = "schedulers"
    routers = "routers"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(args=arguments, prog_name="llmsim")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except ScenarioError as error:
        print(error, file=sys.stderr)
        status = 2
    except SimulationError as error:
        print(f"The simulation broke one of its own laws; please report it.\n{error}", file=sys.stderr)
        status = 1
    return _flushed(status)


@app.callback(invoke_without_command=True)
def _version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if show:
        from llmsim import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def run(
    scenario: Annotated[Path, typer.Argument(help="Scenario file, or the scenario.json of a result.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a value: pools.replicas=2. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to save the result and its report to.")] = None,
    report: Annotated[Path | None, typer.Option(help="HTML file to write the report to.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    measured: Annotated[
        Path | None, typer.Option(help="Table of requests as a server answered them, for the report to show beside.")
    ] = None,
    replications: Annotated[
        int, typer.Option(min=1, help="Seeds to run, each figure then with its 95 % interval.")
    ] = 1,
    jobs: Annotated[int, typer.Option(help="Replications at the same time; -1: one a core.")] = -1,
) -> None:
    """Simulate a scenario and print its figures."""
    from llmsim.scenario import load_scenario

    if measured is not None and out is None and report is None:
        raise ScenarioError("--measured is shown in the report; add --report FILE or --out FOLDER")
    given = load_scenario(scenario, settings or ())
    if replications > 1:
        if out is not None or report is not None or measured is not None:
            raise ScenarioError("--out, --report and --measured are of one run; leave them out with --replications")
        print_replications(given, replications, jobs, as_json)
        return

    from llmsim.simulation import simulate

    with _progress() as progress:
        results = simulate(given, progress=progress)
    if out is not None:
        results.save(out)
    for path in (report, out and out / "report.html"):
        if path is not None:
            _report(results, path, measured)
    _print_results(results, as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Result folder that run --out wrote.")],
    out: Annotated[Path | None, typer.Option(help="HTML file; by default report.html in the folder.")] = None,
    measured: Annotated[
        Path | None, typer.Option(help="Table of requests as a server answered them, to show beside the run.")
    ] = None,
) -> None:
    """Write the HTML report of a saved result."""
    from llmsim.results.results import load_results

    _report(load_results(folder), out or folder / "report.html", measured)


@app.command()
def explain(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="Catalogue name, or a path to a config.json.")],
    accelerator: Annotated[str, typer.Option(help="Catalogue name, or a path to a .toml file.")],
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    data_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    dtype: str | None = None,
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    gpu_memory_utilization: float | None = None,
    engine: Annotated[str, typer.Option(help="Whose memory rules: vllm, sglang, tensorrt-llm.")] = "vllm",
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="No CUDA graphs.")] = False,
    prompt: Annotated[int, typer.Option(help="Tokens of a prompt.")] = 1000,
    output: Annotated[int, typer.Option(help="Tokens of an answer.")] = 250,
    batch: Annotated[int | None, typer.Option(help="Sequences that decode at once.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests a second to count GPUs for.")] = None,
    num_speculative_tokens: Annotated[
        int | None, typer.Option(help="Drafted tokens that a decode step verifies.")
    ] = None,
    ideal: Annotated[bool, typer.Option("--ideal", help="The back of the envelope instead of the model.")] = False,
    mfu: Annotated[float | None, typer.Option(help="Its share of peak FLOP/s.")] = None,
    mbu: Annotated[float | None, typer.Option(help="Its share of HBM bandwidth.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="memory, prefill, decode or capacity. Repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a deployment by arithmetic: memory, prefill, decode, capacity."""
    from llmsim.report.explain.options import explained

    found = explained(context.params)
    if as_json:
        _print_json(found.as_dict())
    else:
        from llmsim.report.explain.text import render

        print(render(found))


@app.command()
def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Tables of measured values; by default those shipped.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the errors as JSON, as fractions.")] = False,
    html: Annotated[Path | None, typer.Option(help="HTML file to write the errors and figures to.")] = None,
) -> None:
    """Simulate what was measured on real servers, and print how far off the simulation is."""
    from llmsim.validation.compare import validate as score

    tables = score(files or ())
    if html is not None:
        from llmsim.report.validation_page import write_validation_page
        from llmsim.validation.overlay import overlay

        traces = [Path(each.reading.file) for each in tables if each.reading.kind == "server traces" and each.scored]
        write_validation_page(tables, html, [overlay(path) for path in traces])
        print(f"Report: {html}", file=sys.stderr)
    if as_json:
        _print_json({"tables": [table.as_dict() for table in tables]})
    else:
        from rich.console import Console

        from llmsim.report.validation_tables import print_errors

        print_errors(tables, Console())


@app.command()
def calibrate(
    file: Annotated[
        Path,
        typer.Argument(help="Your measurements: a table (.csv) of steps or benchmarks, or a benchmark tool's result."),
    ],
    accelerator: Annotated[str, typer.Option(help="What they were measured on: catalogue name, or a .toml file.")],
    out: Annotated[Path, typer.Option(help="TOML file to write: the accelerator that a scenario can name.")],
) -> None:
    """Fit an accelerator's efficiencies and host times to your own measurements."""
    from rich.console import Console

    from llmsim.report.validation_tables import print_calibration
    from llmsim.validation.fitting import calibrate as fit
    from llmsim.validation.fitting import profile

    calibration = fit(file, accelerator)
    out.write_text(profile(calibration), encoding="utf-8")
    print_calibration(calibration, Console())
    print(f"Profile: {out}", file=sys.stderr)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from llmsim.scenario import scenario_schema

    _print_json(scenario_schema())


@app.command()
def catalog(
    shelf: Annotated[Shelf | None, typer.Argument(help="What to list; by default everything.")] = None,
    name: Annotated[str | None, typer.Argument(help="An entry, to show whole.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List models, hardware, workloads and policies, or show one of them."""
    from rich.console import Console

    from llmsim.report import catalogue

    if shelf is not None and name is not None:
        facts = catalogue.entry(shelf.value, name)
        _print_json(facts) if as_json else catalogue.print_entry(shelf.value, name, Console())
        return
    shelves = [each.value for each in Shelf] if shelf is None else [shelf.value]
    if as_json:
        _print_json({each: catalogue.entries(each) for each in shelves})
    else:
        catalogue.print_shelves(shelves, Console())


add_commands(app)
app.command()(ask)


def _print_results(results: "Results", as_json: bool) -> None:
    if as_json:
        _print_json(results.summary())
        return
    from rich.console import Console

    from llmsim.report.console import print_summary

    print_summary(results, Console())


def _report(results: "Results", path: Path, measured: Path | None = None) -> None:
    from llmsim.report.html import write_report

    write_report(results, path, measured)
    print(f"Report: {path}", file=sys.stderr)


def _print_json(value: Any) -> None:
    print(json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2))


@contextmanager
def _progress(quiet_s: float = 2.0) -> Iterator[Callable[[float, int, int], None]]:
    """Shows how far a run is when it takes longer than ``quiet_s``.

    A terminal gets one line that is written over, a log a line every ten seconds.
    """
    rewrites = sys.stderr.isatty()
    due = time.monotonic() + quiet_s
    width = 0

    def show(simulated_s: float, done: int, total: int) -> None:
        nonlocal due, width
        if time.monotonic() < due:
            return
        due = time.monotonic() + (0.2 if rewrites else 10.0)
        line = f"simulated {simulated_s:,.1f} s, {done:,} of {total:,} requests done"
        sys.stderr.write(f"\r{line:<{width}}" if rewrites else f"{line}\n")
        sys.stderr.flush()
        width = len(line)

    try:
        yield show
    finally:
        if rewrites and width:
            sys.stderr.write(f"\r{'':<{width}}\r")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"Warning: {message}", file=sys.stderr)


def _flushed(status: int) -> int:
    """The status, when standard output is written out; a reader that has gone away is no fault."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


if __name__ == "__main__":
    sys.exit(main())
