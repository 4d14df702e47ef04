"""The commands of studies: ``sweep``, ``capacity``, ``plan``, ``compare``, ``why`` and ``vllm``."""

import json
import sys
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmsim.errors import ScenarioError

if TYPE_CHECKING:
    import pandas as pd

    from llmsim.scenario import Scenario
    from llmsim.study.planning import Plan
    from llmsim.study.running import OnProgress, Progress


class Backend(StrEnum):
    """Where runs go."""

    loky = "loky"
    threading = "threading"
    dask = "dask"
    ray = "ray"


class Explainable(StrEnum):
    """Latencies whose parts are known."""

    ttft = "ttft"
    tpot = "tpot"
    e2e = "e2e"


ScenarioPath = Annotated[Path, typer.Argument(help="Scenario file, or the scenario.json of a result.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value. Repeatable.")]
Jobs = Annotated[int, typer.Option(help="Runs at the same time; -1: one a core.")]
Report = Annotated[Path | None, typer.Option(help="HTML file to write pictures and the table to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def sweep(
    scenario: ScenarioPath,
    grid: Annotated[list[str], typer.Option(metavar="KEY=A,B,C", help="Values of a key. Repeatable.")],
    settings: Settings = None,
    replications: Annotated[int, typer.Option(help="Seeds of each combination.")] = 1,
    jobs: Jobs = -1,
    backend: Annotated[Backend, typer.Option(help="Processes here, threads, or a Dask or Ray cluster.")] = Backend.loky,
    out: Annotated[Path | None, typer.Option(help="Folder of finished runs, table and page; goes on there.")] = None,
    metric: Annotated[str, typer.Option(help="Figure that is printed and drawn.")] = "ttft_s.p99",
    as_json: AsJson = False,
) -> None:
    """Run every combination of values; a killed sweep goes on where it was."""
    from llmsim.scenario import load_scenario
    from llmsim.study.sweeping import parse_grid
    from llmsim.study.sweeping import sweep as run_sweep

    folder = out or Path("results") / f"sweep-{scenario.stem}"
    given, values = load_scenario(scenario, settings or ()), parse_grid(grid)
    found = run_sweep(
        given, values, replications=replications, jobs=jobs, backend=backend.value, folder=folder, progress=_progress()
    )
    table = found.frame
    table.to_csv(folder / "sweep.csv", index=False, lineterminator="\n")
    from llmsim.report.study_figures import sweep_figure

    picture = ("What the grid does", "Bands are 95 % intervals over the seeds.", sweep_figure(found, metric))
    answers = [f"{len(found.cells):,} runs of {len(found.cells) // replications:,} combinations; all figures: "
               f"{folder / 'sweep.csv'}"]  # fmt: skip
    shown = table[[*values, "seed", "verdict", metric]]
    _show("sweep", given.name, answers, shown, [picture], folder / "sweep.html", as_json)


def capacity(
    scenario: ScenarioPath,
    settings: Settings = None,
    replications: Annotated[int, typer.Option(help="Seeds that the interval is from.")] = 5,
    jobs: Jobs = -1,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Find the highest load that keeps the SLO, and what fails first beyond it."""
    from llmsim.scenario import load_scenario
    from llmsim.study.capacities import capacity as search

    given = load_scenario(scenario, settings or ())
    found = search(given, replications=replications, jobs=jobs, progress=_progress())
    from llmsim.report.study_figures import capacity_figure
    from llmsim.report.study_text import capacity_answers

    caption = "Dashed: the capacity with its interval; dotted: the limits. Points are runs, shorter ones far from it."
    picture = ("Latency over load", caption, capacity_figure(found))
    columns = ["load", "requests", "verdict", "ttft_s.p99", "tpot_s.p99", "e2e_s.p99", "request_throughput_per_s"]
    table = found.curve if as_json else found.curve[columns]
    _show("capacity", given.name, capacity_answers(found), table, [picture], report, as_json)


def plan(
    scenario: ScenarioPath,
    rate: Annotated[float | None, typer.Option(help="Requests a second at peak.")] = None,
    daily_users: Annotated[float | None, typer.Option(help="Instead of the rate: users a day,")] = None,
    requests_per_user: Annotated[float, typer.Option(help="requests of each a day,")] = 5.0,
    peak_to_average: Annotated[float, typer.Option(help="and peak over average rate.")] = 2.5,
    accelerators: Annotated[str, typer.Option(help="Names, split at commas; empty: all well known.")] = "",
    tensor_parallel_sizes: Annotated[str, typer.Option(help="Split at commas.")] = "1,2,4,8",
    pipeline_parallel_sizes: Annotated[str, typer.Option(help="Split at commas.")] = "1",
    expert_parallel: Annotated[bool, typer.Option("--expert-parallel", help="Try it too.")] = False,
    quantizations: Annotated[str, typer.Option(help="Split at commas; auto: the scenario's.")] = "auto",
    max_num_seqs: Annotated[str, typer.Option(help="Split at commas; auto: the scenario's.")] = "auto",
    headroom: Annotated[float, typer.Option(help="Replicas over those needed at peak.")] = 1.25,
    searched: Annotated[int, typer.Option(help="Candidates that are simulated at most.")] = 6,
    settings: Settings = None,
    jobs: Jobs = -1,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Find the cheapest hardware for a traffic, and say why the others lost."""
    from llmsim.scenario import load_scenario
    from llmsim.study.candidates import Choices
    from llmsim.study.planning import Traffic
    from llmsim.study.planning import plan as search

    if (rate is None) == (daily_users is None):
        raise ScenarioError("give either --rate or --daily-users")
    users = Traffic.of_users(daily_users or 0.0, requests_per_user, peak_to_average)
    traffic = users if rate is None else Traffic(rate, rate / peak_to_average)
    choices = Choices(
        accelerators=_listed(accelerators),
        tensor_parallel_sizes=_listed(tensor_parallel_sizes),
        pipeline_parallel_sizes=_listed(pipeline_parallel_sizes),
        quantizations=_listed(quantizations),
        max_num_seqs=_listed(max_num_seqs),
        enable_expert_parallel=(False, True) if expert_parallel else (False,),
    )
    given = load_scenario(scenario, settings or ())
    found = search(given, traffic, choices, headroom=headroom, searched=searched, jobs=jobs, progress=_progress())
    _show_plan(found, report, as_json)


def compare(
    a: Annotated[Path, typer.Argument(help="Scenario file: as it is.")],
    b: Annotated[Path, typer.Argument(help="Scenario file: as it would be.")],
    settings_b: Annotated[
        list[str] | None, typer.Option("--set-b", metavar="KEY=VALUE", help="Replace a value in B only. Repeatable.")
    ] = None,
    settings: Settings = None,
    pairs: Annotated[int, typer.Option(help="Pairs of runs with the same requests.")] = 6,
    noise: Annotated[float, typer.Option(help="Variation of a real machine from run to run, as a share.")] = 0.0,
    effect: Annotated[float, typer.Option(help="The change that matters, as a share.")] = 0.05,
    false_alarms: Annotated[bool, typer.Option("--false-alarms", help="Also compare A with itself.")] = False,
    jobs: Jobs = -1,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Compare two scenarios by paired runs: effect, interval, power, verdict."""
    from llmsim.scenario import load_scenario
    from llmsim.study.comparing import compare as run_pairs
    from llmsim.study.comparing import false_alarms as against_itself

    first = load_scenario(a, settings or ())
    second = load_scenario(b, [*(settings or ()), *(settings_b or ())])
    if settings_b and second.name == first.name:
        second = replace(second, name=f"{second.name}, {', '.join(settings_b)}")
    found = run_pairs(first, second, pairs=pairs, noise_cv=noise, effect=effect, jobs=jobs, progress=_progress())
    from llmsim.report.study_figures import comparison_figure
    from llmsim.report.study_text import comparison_answers, comparison_table

    answers = comparison_answers(found)
    if false_alarms:
        share = against_itself(
            first, "ttft_s.p50", pairs=pairs, noise_cv=noise, runs=4 * pairs, jobs=jobs, progress=_progress()
        )
        answers.append(f"A against A is called different in {share:.1%} of comparisons (TTFT p50); 5 % is right.")
    picture = ("What B changes", "Points are the change from A to B, bars its 95 % interval.", comparison_figure(found))
    table = found.frame if as_json else comparison_table(found)
    _show("compare", f"{first.name} and {second.name}", answers, table, [picture], report, as_json)


def why(
    scenario: ScenarioPath,
    metric: Annotated[Explainable, typer.Option(help="Which latency.")] = Explainable.ttft,
    percentile: Annotated[float, typer.Option(min=0, max=100, help="Of which requests.")] = 99.0,
    what_if: Annotated[bool, typer.Option("--what-if", help="Also measure what would help, by paired runs.")] = False,
    pairs: Annotated[int, typer.Option(help="Pairs of runs for that.")] = 4,
    settings: Settings = None,
    jobs: Jobs = -1,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Say where the time of the slowest requests goes, and what would help."""
    from llmsim.results.breakdown import explain_percentile
    from llmsim.scenario import load_scenario
    from llmsim.simulation import simulate
    from llmsim.study.running import kept
    from llmsim.study.whatif import what_if as pull_levers

    given = load_scenario(scenario, settings or ())
    results = simulate(kept(given, "full"))
    found = explain_percentile(results.record, metric.value, percentile)
    from llmsim.report.study_figures import waterfall_figure, what_if_figure
    from llmsim.report.study_text import explained_answer, explained_table

    answers = [explained_answer(found), results.what_binds()]
    pictures = [("Where the time goes", "Component upon component up to the whole.", waterfall_figure(found))]
    if what_if:
        statistic = "p99" if percentile > 75 else "p50"
        levers = pull_levers(given, f"{metric.value}_s.{statistic}", pairs=pairs, jobs=jobs, progress=_progress())
        answers.append(levers.advice)
        pictures.append(("What would help", f"{levers.metric} with 10 % more of each.", what_if_figure(levers)))
    _show("why", given.name, answers, explained_table(found), pictures, report, as_json)


def vllm(
    what: Annotated[str, typer.Argument(help='A command in quotes, "vllm serve MODEL ...", or a scenario file.')],
    accelerator: Annotated[str, typer.Option(help="What the command runs on.")] = "h100-sxm",
    rate: Annotated[float, typer.Option(help="Requests a second it gets.")] = 1.0,
) -> None:
    """Print the scenario of a vllm serve command, or the command of a scenario."""
    from llmsim.study.vllm_serve import commands_of_scenario, scenario_of_command

    if what.endswith((".toml", ".json")) and " " not in what:
        from llmsim.scenario import load_scenario

        print("\n".join(commands_of_scenario(load_scenario(what))))
        return
    found = scenario_of_command(what, accelerator=accelerator, rate_per_s=rate)
    for flag in found.unknown:
        print(f"Warning: not simulated: {flag}", file=sys.stderr)
    print(found.text, end="")


def print_replications(scenario: "Scenario", count: int, jobs: int, as_json: bool) -> None:
    """Run a loaded scenario under several seeds and print its figures with their intervals."""
    from llmsim.report.study_text import replications_answers, replications_table
    from llmsim.study.replications import replicate

    found = replicate(scenario, count, jobs=jobs, progress=_progress())
    table = found.frame() if as_json else replications_table(found)
    _show("run", f"{scenario.name}, {count} seeds", replications_answers(found), table, [], None, as_json)


def add_commands(app: typer.Typer) -> None:
    """Put the commands of studies among those of ``app``."""
    for command in (sweep, capacity, plan, compare, why, vllm):
        app.command()(command)


def _listed(text: str) -> tuple[Any, ...]:
    """Values split at commas; auto: None."""
    from llmsim.scenario.settings import parse_value

    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(None if part == "auto" else parse_value(part) for part in parts)


def _show_plan(found: "Plan", page: Path | None, as_json: bool) -> None:
    """Print a plan and why the others lost, and write its page."""
    from llmsim.report.study_figures import plan_figure, tornado_figure
    from llmsim.report.study_text import losers_table, plan_answers, print_study

    pictures = [
        ("Options", "Dark: nothing is better in cost, latency and GPUs at once.", plan_figure(found)),
        ("Assumptions", "What the cheapest costs when one of them is off.", tornado_figure(found)),
    ]
    columns = ["option", "requests_per_s", "with_headroom", "gpus", "usd_per_month", "ttft_p99_s", "pareto"]
    table = found.frame if as_json else found.frame[columns]
    name = found.best.candidate.scenario.name
    _show("plan", name, plan_answers(found), table, pictures, page, as_json)
    if not as_json:
        from rich.console import Console

        print_study("Why the others lost", [], losers_table(found), Console())


def _show(
    kind: str,
    title: str,
    answers: list[str],
    table: "pd.DataFrame",
    pictures: list[tuple[str, str, Any]],
    page: Path | None,
    as_json: bool,
) -> None:
    """Print a study, and write its page."""
    if page is not None:
        from llmsim.report.study_page import Picture, write_study

        write_study(kind, title, answers, [Picture(*each) for each in pictures], table, page)
        print(f"Report: {page}", file=sys.stderr)
    if as_json:
        rows = json.loads(table.to_json(orient="records", double_precision=15))
        print(json.dumps({"answers": answers, "table": rows}, ensure_ascii=False, indent=2))
        return
    from rich.console import Console

    from llmsim.report.study_text import print_study

    print_study(title, answers, table, Console())


def _progress(quiet_s: float = 2.0) -> "OnProgress":
    """Shows how many runs are done and how long the rest may take, once that is more than ``quiet_s``.

    A terminal gets one line that is written over, a log a line every ten seconds.
    """
    rewrites = sys.stderr.isatty()
    due = time.monotonic() + quiet_s

    def show(progress: "Progress") -> None:
        nonlocal due
        over = progress.done >= progress.total
        if time.monotonic() < due and not (rewrites and over):
            return
        due = time.monotonic() + (0.2 if rewrites else 10.0)
        left = f", about {progress.left_s:.0f} s left" if progress.left_s > 0 else ""
        line = "" if over and rewrites else f"{progress.done:,} of {progress.total:,} runs{left}"
        sys.stderr.write(f"\r{line:<60}" + ("\r" if over else "") if rewrites else f"{line}\n")
        sys.stderr.flush()

    return show
