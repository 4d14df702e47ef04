"""How much headroom a fleet needs: bursts, failures, and TTFT over utilisation."""

from typing import Any

from llmsim.closed_form import Line, saturated, sequences_for, square_root_staffing
from llmsim.cluster.router import LeastOutstanding
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import full
from llmsim.units import format_duration, format_percent
from llmsim.workload.arrivals import Gamma

PROMPT, OUTPUT, SLOTS, REPLICAS = 500, 200, 32, 4
REQUESTS, BURSTY_CV = 600, 3.0
LOADS = (0.6, 0.75, 0.9)


def answer(subject: Subject) -> Answer:
    """The answer for four replicas of 32 slots."""
    scheduler = VllmScheduler(max_num_seqs=SLOTS)
    served = full(subject, SLOTS, PROMPT, OUTPUT, scheduler=scheduler)["request_throughput_per_s"]
    runs = {
        (load, kind): _run(subject, load * served * REPLICAS, kind)
        for load in LOADS
        for kind in ("steady", "bursts", "one lost")
    }
    arithmetic = _arithmetic(subject, served)
    worked = {line.key: line.value for line in arithmetic}
    return Answer(
        short=_short(worked, runs),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, runs),
        pitfalls=(
            "Headroom is for three things: chance, bursts, and what fails; add them up knowingly",
            "A small fleet needs a larger share: one of four replicas is a quarter of it",
            "Autoscaling reacts in minutes, a queue grows in seconds: it replaces no headroom",
            "Batch work that can be shed or delayed is headroom that earns money",
            "Plan for the loss of a zone, not of a GPU, if that is what you promise",
        ),
        commands=(
            Command(
                f"llmsim run scenarios/chat_h100.toml {subject.settings} --set pools.replicas=4 --set "
                "workload.rate_per_s=60 --set workload.requests=1000",
                "The chat of the README on four replicas",
            ),
            Command("llmsim run scenarios/code_completion_bursts.toml --set workload.requests=1000", "Measured bursts"),
            Command("llmsim run scenarios/retry_storm.toml", "What no headroom and retries do together"),
        ),
        pictures=(_picture(runs),),
        notes=(
            f"{REPLICAS} replicas of {SLOTS} slots behind the router of fewest outstanding requests, {PROMPT} tokens "
            f"in, {OUTPUT} out, {REQUESTS} arrivals: Poisson, or bursts with gaps of cv {BURSTY_CV:g}; load 1 is what "
            f"full slots serve, {served * REPLICAS:.3g} requests/s; one lost: the same rate on {REPLICAS - 1} replicas",
        ),
    )


def _run(subject: Subject, rate_per_s: float, kind: str) -> dict[str, Any]:
    arrivals = {"arrivals": Gamma(cv=BURSTY_CV)} if kind == "bursts" else {}
    return subject.summary(
        a_client(PROMPT, OUTPUT, rate_per_s=rate_per_s, **arrivals),
        requests=REQUESTS,
        scheduler=VllmScheduler(max_num_seqs=SLOTS),
        replicas=REPLICAS - (kind == "one lost"),
        router=LeastOutstanding(),
    )


def _arithmetic(subject: Subject, served: float) -> tuple[Line, ...]:
    slots = SLOTS * REPLICAS
    bound = saturated(subject.envelope(), subject.deployment(), PROMPT, OUTPUT, SLOTS)
    largest = _largest(slots)
    lines = [
        Line("served", "requests/s of full slots, closed form", REPLICAS / bound.request_s, "1/s", "replicas / request",
             {"replicas": REPLICAS, "request": bound.request_s}),
        Line("chance", "load with two deviations of room for chance", largest, "share"),
        Line("chance_large", "the same for a hundred times the slots", _largest(100 * slots), "share"),
        Line("failure", "load that one lost replica leaves below 1", 1 - 1 / REPLICAS, "share", "1 - 1 / replicas",
             {"replicas": REPLICAS}),
        Line("both", "both together", largest * (1 - 1 / REPLICAS), "share", "chance * failure",
             {"chance": largest, "failure": 1 - 1 / REPLICAS}),
    ]  # fmt: skip
    lines += [
        Line(f"lost_{load}", f"load {load:g} after one is lost", load * REPLICAS / (REPLICAS - 1), "share",
             "load * replicas / (replicas - 1)", {"load": load, "replicas": REPLICAS})
        for load in LOADS
    ]  # fmt: skip
    return tuple(lines)


def _largest(slots: int) -> float:
    """The load at which the slots hold its mean and two deviations."""
    return max(load for load in (k / 1000 for k in range(1000)) if square_root_staffing(load * slots) <= slots)


def _contrasts(subject: Subject, runs: dict[tuple[float, str], dict[str, Any]]) -> tuple[Contrast, ...]:
    deployment, cost = subject.deployment(), subject.envelope()
    full_s = saturated(cost, deployment, PROMPT, OUTPUT, SLOTS).request_s
    found = [
        Contrast(f"busy {load}", f"slots taken at {format_percent(load)}", "",
                 REPLICAS * sequences_for(cost, deployment, PROMPT, OUTPUT, load / full_s, SLOTS),
                 runs[load, "steady"]["running"]["mean"], f"of {REPLICAS * SLOTS}; the run begins and ends empty")
        for load in LOADS
    ]  # fmt: skip
    for (load, kind), run in runs.items():
        after = load * REPLICAS / (REPLICAS - 1)
        why = f"{run['waiting']['max']:.0f} wait at most, {run['running']['mean']:.0f} run on average"
        if kind == "one lost":
            why = f"load {format_percent(after)}" + (
                ": the queue grows until the test ends" if after > 1 else f"; {why}"
            )
        found.append(Contrast(f"{kind} {load}", f"TTFT p99 at {format_percent(load)}, {kind}", "s", None,
                              run["ttft_s"]["p99"], why))  # fmt: skip
    return tuple(found)


def _short(worked: dict[str, float], runs: dict[tuple[float, str], dict[str, Any]]) -> tuple[str, ...]:
    def p99(load: float, kind: str) -> str:
        return format_duration(runs[load, kind]["ttft_s"]["p99"])

    low, high = LOADS[0], LOADS[-1]
    return (
        "Room for chance, bursts and failures. Chance: Poisson arrivals fluctuate by the root of their mean, so "
        f"{SLOTS * REPLICAS} slots bear a load of {format_percent(worked['chance'])} and a hundred times as many "
        f"{format_percent(worked['chance_large'])}. Failure: one of {REPLICAS} replicas lost leaves the others below "
        f"full load only up to {format_percent(worked['failure'])}; with both {format_percent(worked['both'])}. "
        "Bursts: as much as your traffic has within the time that scaling takes.",
        f"Simulated TTFT p99 at {format_percent(low)}: {p99(low, 'steady')} steady, {p99(low, 'bursts')} in bursts, "
        f"{p99(low, 'one lost')} with one lost; at {format_percent(high)}: {p99(high, 'steady')}, "
        f"{p99(high, 'bursts')}, {p99(high, 'one lost')}.",
    )


def _picture(runs: dict[tuple[float, str], dict[str, Any]]) -> Picture:
    names = tuple(format_percent(load) for load in LOADS)
    series = tuple(
        Series(kind, names, tuple(runs[load, kind]["ttft_s"]["p99"] for load in LOADS), "bars")
        for kind in ("steady", "bursts", "one lost")
    )
    return Picture("TTFT p99 over load", "Simulated.", "load at peak", "TTFT p99 (s)", series, log_y=True)
