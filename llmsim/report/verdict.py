"""Answers in sentences, for the HTML report and the console: is the SLO met, is it stable, what binds."""

from dataclasses import dataclass
from typing import Any, Literal

from llmsim.report.tables import METRIC_NAMES, percent, slo_name
from llmsim.results.attribution import what_binds
from llmsim.results.results import Results
from llmsim.units import format_duration

_STABILITY = {
    "saturated": "Not stable",
    "short": "Stability cannot be told from a run this short",
    "stable": "Stable",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a planner reads first."""

    status: Literal["met", "missed", "none"]
    headline: str
    targets: tuple[str, ...]
    """One sentence a target of the SLO, the worst first; the p99 values when there is none."""
    stability: str
    confidence: str
    """How well this run alone knows its tails; empty at record level ``summary``."""
    binding: str


def judge(results: Results) -> Verdict:
    """The verdict on a run."""
    summary = results.summary()
    status, headline = _slo(summary)
    targets = _targets(summary["slo"]["targets"]) or (_tails(summary),)
    return Verdict(status, headline, targets, stability(results), confidence(results), binding(results))


def _slo(summary: dict[str, Any]) -> tuple[Literal["met", "missed", "none"], str]:
    slo = summary["slo"]
    if not slo["targets"]:
        return "none", "No SLO stated"
    if slo["met"] is None:
        return "none", "SLO not judged: no request arrived in the measured window"
    if slo["met"]:
        return "met", "SLO met"
    missed = sum(target["met"] is False for target in slo["targets"].values())
    return "missed", f"SLO missed: {missed} of {len(slo['targets'])} limits"


def _targets(targets: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    def excess(key: str) -> float:
        value = targets[key]["value_s"]
        return float("-inf") if value is None else -value / targets[key]["limit_s"]

    return tuple(_target(key, targets[key]) for key in sorted(targets, key=excess))


def _target(key: str, target: dict[str, Any]) -> str:
    limit_s, value_s, name = target["limit_s"], target["value_s"], slo_name(key)
    if value_s is None:
        return f"{name}: no value to compare with the limit of {format_duration(limit_s)}."
    told = f"{name} is {format_duration(value_s)}, limit {format_duration(limit_s)}"
    if target["met"]:
        return f"{told}: {percent(1 - value_s / limit_s)} to spare."
    ratio = value_s / limit_s
    by = f"{percent(ratio - 1)} over the limit" if ratio < 1.995 else f"{ratio:,.1f} times the limit"
    return f"{told}: {by}."


def _tails(summary: dict[str, Any]) -> str:
    known = [
        f"{METRIC_NAMES[metric]} p99 is {format_duration(summary[f'{metric}_s']['p99'])}"
        for metric in ("ttft", "tpot", "e2e")
        if summary[f"{metric}_s"]["p99"] is not None
    ]
    return ", ".join(known) + "." if known else "No request finished, so there is no latency to report."


def stability(results: Results) -> str:
    """Whether requests left as fast as they came, where it can be told; ``judge_stability`` says how."""
    found = results.stability()
    if found.verdict == "unknown":
        return "Stability cannot be told: too few requests are known."
    told = (
        f"in the second half of the arrivals requests finished at {percent(1 - found.growth)} of the rate at which "
        f"they came, and those in the system went from {found.before:,} to {found.after:,}."
    )
    return f"{_STABILITY[found.verdict]}: {told}"


def confidence(results: Results) -> str:
    """The 95 % intervals of the tails, from this run alone."""
    intervals = results.summary()["intervals"]
    told = [
        f"{METRIC_NAMES[metric]} p99 {_bounds(**intervals[f'{metric}_s']['p99'])}"
        for metric in ("ttft", "tpot", "e2e")
        if intervals[f"{metric}_s"]["p99"]["low"] is not None
    ]
    return f"From this run alone, 95 %: {', '.join(told)}." if told else ""


def _bounds(low: float, high: float | None) -> str:
    if high is None:
        return f"{format_duration(low)} or more: too few slow requests are independent"
    return f"{format_duration(low)} to {format_duration(high)}"


def binding(results: Results) -> str:
    """What most of the replicas' time went to and why requests waited; what a full KV pool cost."""
    summary = results.summary()
    told = what_binds(results.record, summary)
    if summary["preemptions"]:
        fullest = percent(summary["kv_usage"]["max"])
        told += f" The KV pool was up to {fullest} full: {summary['preemptions']:,} preemptions."
    return told
