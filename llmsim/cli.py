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

if TYPE_CHECKING:
    from llmsim.catalog import Kind
    from llmsim.results.results import Results

app = typer.Typer(
    help="Simulate LLM serving: from a scenario to latencies, GPUs and cost, with the reason.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
) -> None:
    """Simulate a scenario and print its figures."""
    from llmsim.scenario import load_scenario

    given = load_scenario(scenario, settings or ())

    from llmsim.simulation import simulate

    with _progress() as progress:
        results = simulate(given, progress=progress)
    if out is not None:
        results.save(out)
    for path in (report, out and out / "report.html"):
        if path is not None:
            _report(results, path)
    if as_json:
        _print_json(results.summary())
    else:
        from rich.console import Console

        from llmsim.report.console import print_summary

        print_summary(results, Console())


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Result folder that run --out wrote.")],
    out: Annotated[Path | None, typer.Option(help="HTML file; by default report.html in the folder.")] = None,
) -> None:
    """Write the HTML report of a saved result."""
    from llmsim.results.results import load_results

    _report(load_results(folder), out or folder / "report.html")


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
    if shelf is not None and name is not None:
        found: Any = _entry(shelf, name)
    else:
        shelves = list(Shelf) if shelf is None else [shelf]
        found = {each.value: list(_names(each)) for each in shelves}
    if as_json:
        _print_json(found)
    elif name is not None:
        print("\n".join(_lines(found)))
    else:
        print("\n\n".join("\n  ".join([title, *names]) for title, names in found.items()))


def _names(shelf: Shelf) -> Sequence[str]:
    from llmsim import catalog

    kind = _facts(shelf)
    return catalog.names(kind) if kind else list(_policies(shelf))


def _entry(shelf: Shelf, name: str) -> dict[str, Any]:
    from llmsim import catalog

    if kind := _facts(shelf):
        return catalog.entry(kind, name)
    policies = _policies(shelf)
    if name not in policies:
        near = catalog.suggestion(name, list(policies)) or "."
        raise ScenarioError(f"{shelf} {name!r} is not known{near} Known: {', '.join(policies)}.")
    return policies[name]


def _facts(shelf: Shelf) -> "Kind | None":
    """The kind of catalogue file the shelf holds; None when it holds policies."""
    match shelf:
        case Shelf.accelerators:
            return "accelerators"
        case Shelf.models:
            return "models"
        case Shelf.workloads:
            return "workloads"
    return None


def _policies(shelf: Shelf) -> dict[str, dict[str, Any]]:
    """What each kind of policy does and its settings, by kind."""
    from llmsim.scenario import scenario_schema

    schema = scenario_schema()
    definitions = schema["$defs"]
    owner = schema if shelf is Shelf.routers else definitions["EngineSpec"]
    field = owner["properties"][shelf.removesuffix("s")]
    policies = {}
    for alternative in field.get("oneOf", [field]):
        policy = definitions[alternative["$ref"].rpartition("/")[2]]
        settings = dict(policy["properties"])
        kind = settings.pop("kind")["const"]
        policies[kind] = {
            "kind": kind,
            "description": policy["description"],
            "settings": {
                key: {"default": setting.get("default"), "description": setting.get("description", "")}
                for key, setting in settings.items()
            },
        }
    return policies


def _lines(entry: dict[str, Any], indent: str = "") -> Iterator[str]:
    """A mapping as indented lines for people."""
    for key, value in entry.items():
        if isinstance(value, dict):
            yield f"{indent}{key}"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key:<28} {value}"


def _report(results: "Results", path: Path) -> None:
    from llmsim.report.html import write_report

    write_report(results, path)
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
