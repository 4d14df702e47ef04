"""Studies in the terminal: answers in sentences, then a table."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmsim.report.tables import METRIC_NAMES, UNKNOWN, money, number, percent
from llmsim.results.breakdown import COMPONENTS, Explained
from llmsim.results.statistics import Interval
from llmsim.study.candidates import Loser
from llmsim.study.capacities import Capacity
from llmsim.study.comparing import Comparison
from llmsim.study.planning import Plan, Swing
from llmsim.study.replications import Replications
from llmsim.units import format_duration

if TYPE_CHECKING:
    import pandas as pd

SHOWN = (
    "ttft_s.mean",
    "ttft_s.p50",
    "ttft_s.p99",
    "tpot_s.mean",
    "tpot_s.p50",
    "tpot_s.p99",
    "itl_s.p99",
    "e2e_s.mean",
    "e2e_s.p50",
    "e2e_s.p99",
    "queue_s.mean",
    "request_throughput_per_s",
    "output_throughput_tokens_per_s",
    "goodput_per_s",
    "slo_attainment",
    "kv_usage.mean",
    "running.mean",
    "waiting.mean",
    "preemptions",
    "mfu",
    "mbu",
    "cost_usd_per_million_output_tokens",
)
"""Figures of replications that the terminal shows."""
_LABELS: dict[str, tuple[str, Callable[[float], str]]] = {
    "request_throughput_per_s": ("Requests/s", number),
    "output_throughput_tokens_per_s": ("Output tokens/s", number),
    "goodput_per_s": ("Goodput/s", number),
    "cost_usd_per_million_output_tokens": ("$ per 1M tokens", money),
}
"""Compared figures that are no latencies, as the terminal names and writes them."""
_COMPARED = {
    "better": "B is better",
    "worse": "B is worse",
    "no difference seen": "No difference seen",
    "too few": "Too few pairs to tell",
}


def print_study(title: str, answers: Sequence[str], table: "pd.DataFrame", console: Console) -> None:
    """Print a study: title, answers, table."""
    console.print(Text(title, style="bold"))
    for answer in answers:
        console.print(Text(answer))
    console.print()
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in table.columns:
        shown.add_column(str(name), justify="left" if table[name].dtype.kind in "OUT" else "right")
    for row in table.itertuples(index=False):
        shown.add_row(*(Text(cell_text(value)) for value in row))
    console.print(shown)


def replications_answers(found: Replications) -> list[str]:
    """What a reader of replications needs to know before the table."""
    wanted = ["ttft_s.p99", *(_figure_of(key) for key in found.scenario.slo)]
    advice = [found.advice(key) for key in dict.fromkeys(wanted) if found.interval(key).value > 0]
    return [found.warm_up, found.verdict, *advice]


def replications_table(found: Replications) -> "pd.DataFrame":
    """The most read figures with their intervals."""
    frame = found.frame()
    return frame[frame["figure"].isin(SHOWN) & frame["mean"].notna()]


def capacity_answers(found: Capacity) -> list[str]:
    """The capacity in sentences."""
    if not found.value:
        return [f"The SLO is missed at any load. {found.fails_first}"]
    told = f"Capacity: {number(found.value)} {found.load} ({interval_text(found.interval)})."
    bound = f" The closed form has {number(found.bound)} with all slots full." if found.bound == found.bound else ""
    sweep = 20 * found.replications * found.run_requests
    return [
        told + bound,
        found.fails_first,
        f"Simulated {found.requests:,} requests, {percent(found.requests / sweep)} of a sweep of 20 loads.",
    ]


def comparison_answers(found: Comparison) -> list[str]:
    """The comparison in sentences, one a verdict."""
    answers = [f"{found.pairs} pairs of runs, A: {found.a}, B: {found.b}."]
    for verdict, begin in _COMPARED.items():
        metrics = [_written(effect.metric)[0] for effect in found.effects if effect.verdict == verdict]
        if metrics:
            answers.append(f"{begin}: {', '.join(metrics)}.")
    unsure = [effect.pairs_needed for effect in found.effects if effect.verdict == "too few"]
    if unsure:
        answers.append(f"To see {percent(found.effect)} with a chance of 80 % takes up to {max(unsure):,} pairs.")
    return answers


def comparison_table(found: Comparison) -> "pd.DataFrame":
    """A row a figure, for people: both sides, the change with its interval, the verdict."""
    import pandas as pd

    rows = []
    for effect in found.effects:
        label, text = _written(effect.metric)
        value, low, high = (_signed(each) for each in effect.change)
        verdict = effect.verdict.removesuffix(" seen")
        rows.append((label, text(effect.a), text(effect.b), value, f"{low.removesuffix(' %')} to {high}", verdict))
    return pd.DataFrame(rows, columns=["figure", "A", "B", "change", "95 %", "verdict"])


def _signed(share: float) -> str:
    """A change as per cent, with its sign where it is not 0."""
    text = percent(share)
    return f"+{text}" if share > 0 and not text.startswith("0 ") else text


def _written(figure: str) -> tuple[str, Callable[[float], str]]:
    """The name of a compared figure for people, and how its values are written: ``ttft_s.p99`` is TTFT p99."""
    if figure in _LABELS:
        return _LABELS[figure]
    metric, _, statistic = figure.partition("_s.")
    return f"{METRIC_NAMES[metric]} {statistic}", format_duration


def plan_answers(found: Plan) -> list[str]:
    """The plan in sentences."""
    best, traffic = found.best, found.traffic
    return [
        f"Peak {number(traffic.peak_per_s)} requests/s, average {number(traffic.average_per_s)}; "
        f"{found.shape.prompt_tokens:,} prompt and {found.shape.output_tokens:,} output tokens on average.",
        f"Cheapest: {best.candidate.name}: {best.replicas:,} replicas at peak, {best.with_headroom:,} with headroom "
        f"for failures, {best.gpus:,} GPUs, {money(best.usd_per_month)} a month, "
        f"{money(best.usd_per_million_tokens)} per 1M tokens.",
        f"By the closed form {number(found.closed_form_gpus)} GPUs at peak, simulated "
        f"{best.replicas * best.candidate.gpus:,}. {found.difference}",
        found.margin,
        "Its cost hangs most on " + ", then ".join(_swing_text(swing) for swing in found.tornado[:3]) + " a month.",
    ]


def _swing_text(swing: Swing) -> str:
    ends = sorted((swing.low_usd_per_month, swing.high_usd_per_month))
    return f"{swing.assumption} ({' to '.join(money(end) for end in ends)})"


def losers_table(found: Plan) -> "pd.DataFrame":
    """Why each other candidate lost, a line each."""
    import pandas as pd

    beaten = [
        Loser(option.candidate.name, f"costs {percent(option.usd_per_month / found.best.usd_per_month - 1)} more")
        for option in found.options[1:]
    ]
    rows = [(loser.name, loser.reason.splitlines()[0]) for loser in (*beaten, *found.losers)]
    return pd.DataFrame(rows, columns=["candidate", "why it lost"])


def explained_table(found: Explained) -> "pd.DataFrame":
    """A row a component that took time: name, seconds, share, meaning."""
    import pandas as pd

    rows = [
        (name.removesuffix("_s"), format_duration(value), percent(value / found.total_s), COMPONENTS[name])
        for name, value in found.components_s.items()
        if value > 0
    ]
    return pd.DataFrame(rows, columns=["component", "time", "share", "meaning"])


def explained_answer(found: Explained) -> str:
    """The metric at its percentile, and the largest component."""
    largest = max(found.components_s, key=lambda name: found.components_s[name])
    share = percent(found.components_s[largest] / found.total_s)
    return (
        f"{METRIC_NAMES[found.metric]} p{found.percentile:g} is about {format_duration(found.total_s)} (mean of the "
        f"{found.requests:,} nearest requests): {share} of it {COMPONENTS[largest]}."
    )


def interval_text(interval: Interval) -> str:
    """The bounds of an interval, or that there are none."""
    if interval.low != interval.low:
        return "no interval: too little is known"
    return f"95 %: {number(interval.low)} to {number(interval.high)}"


def cell_text(value: Any) -> str:
    """A value of a table: four significant digits, thousands apart, a dash for none."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float):
        if value != value:
            return UNKNOWN
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _figure_of(key: str) -> str:
    """The figure that a limit of the SLO is about: ``ttft_p99_s`` is ``ttft_s.p99``."""
    metric, statistic, _ = key.split("_")
    return f"{metric}_s.{statistic}"
