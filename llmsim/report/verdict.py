"""Answers in sentences, for the HTML report and the console: is the SLO met, is it stable, what binds."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from llmsim.report.tables import METRIC_NAMES, percent, slo_name
from llmsim.results.attribution import what_binds
from llmsim.results.results import Results
from llmsim.units import format_duration

FEW_REQUESTS = 200
"""With fewer requests nothing is said about stability."""
GROWTH, NO_GROWTH = 0.05, 0.02
"""Growth of the backlog, as shares of the arrivals, of a server that falls behind and one that keeps up."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a planner reads first."""

    status: Literal["met", "missed", "none"]
    headline: str
    targets: tuple[str, ...]
    """One sentence a target of the SLO, the worst first; the p99 values when there is none."""
    stability: str
    binding: str


def judge(results: Results) -> Verdict:
    """The verdict on a run."""
    summary = results.summary()
    status, headline = _slo(summary)
    targets = _targets(summary["slo"]["targets"]) or (_tails(summary),)
    return Verdict(status, headline, targets, stability(results), binding(results))


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
    """Whether requests left as fast as they came in the second half of the arrivals, where it can be told.

    The backlog of a server that keeps up wanders around a constant, that of one that does not grows in
    proportion to the arrivals. Growth counts beyond a share of the arrivals and four standard deviations of a
    Poisson count; its absence counts over a span long against the time a request stays.
    """
    requests, facts = results.record.requests, results.facts
    arrival_s, outcome = requests["arrival_s"], requests["outcome"]
    inside = (arrival_s >= facts.window_start_s) & (arrival_s <= facts.window_end_s)
    served = inside & ((outcome == "finished") | (outcome == "in_flight"))
    arrival_s, finish_s = arrival_s[served], requests["finish_s"][served]
    if len(arrival_s) < FEW_REQUESTS or np.isnan(finish_s).all():
        return "Stability cannot be told: too few requests are known."
    middle_s, last_s = np.median(arrival_s), arrival_s.max()
    before = int(np.sum(arrival_s <= middle_s) - np.sum(finish_s <= middle_s))
    after = int(len(arrival_s) - np.sum(finish_s <= last_s))
    arrived = int(np.sum(arrival_s > middle_s))
    growth = (after - before) / max(arrived, 1)
    told = (
        f"in the second half of the arrivals requests finished at {percent(1 - growth)} of the rate at which "
        f"they came, and those in the system went from {before:,} to {after:,}."
    )
    if growth > max(GROWTH, 4 / np.sqrt(max(arrived, 1))):
        return f"Not stable: {told}"
    stay_s = np.nanmedian(finish_s - arrival_s)
    if growth > NO_GROWTH or last_s - middle_s < 5 * stay_s:
        return f"Stability cannot be told from a run this short: {told}"
    return f"Stable: {told}"


def binding(results: Results) -> str:
    """What most of the replicas' time went to and why requests waited; what a full KV pool cost."""
    summary = results.summary()
    told = what_binds(results.record, summary)
    if summary["preemptions"]:
        fullest = percent(summary["kv_usage"]["max"])
        told += f" The KV pool was up to {fullest} full: {summary['preemptions']:,} preemptions."
    return told
