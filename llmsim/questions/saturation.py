"""Why TTFT explodes near saturation: the wait for a slot over load, by queueing theory and by simulation."""

import math
from typing import Any, NamedTuple

from llmsim.closed_form import Line, mean_wait_s, saturated, sequences_for
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import full
from llmsim.units import format_duration, format_percent

PROMPT, OUTPUT, SLOTS = 500, 250, 64
LOADS = (0.5, 0.8, 0.9, 0.95, 0.98, 1.1)
"""Over the rate at which every slot is taken."""
REQUESTS = 800


def answer(subject: Subject) -> Answer:
    """The answer for an engine of 64 slots."""
    scheduler = VllmScheduler(max_num_seqs=SLOTS)
    served = full(subject, SLOTS, PROMPT, OUTPUT, scheduler=scheduler)["request_throughput_per_s"]
    runs = {load: _run(subject, scheduler, load * served) for load in LOADS}
    arithmetic = _arithmetic(subject)
    return Answer(
        short=_short(runs, served),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, runs, served),
        pitfalls=(
            "Above saturation TTFT has no value: it grows as long as the test runs, so a longer test measures more",
            "A load generator with few workers hides it: it waits, and arrivals become a closed loop",
            "Mean utilisation of 80 % over a day may be 110 % for a quarter of an hour",
            "TPOT hardly warns: it is bounded by the slots, the queue is not",
            "Percentiles near saturation need thousands of requests",
        ),
        commands=(
            Command(
                "llmsim run scenarios/load_generator_limit.toml --set workload.requests=2000",
                "A load test beyond saturation",
            ),
            Command(
                "llmsim run scenarios/chat_h100.toml --set workload.rate_per_s=25", "The chat of the README, overloaded"
            ),
            Command("llmsim capacity scenarios/chat_h100.toml --replications 2", "Where the SLO breaks, and why"),
        ),
        pictures=(_picture(subject, runs),),
        notes=(
            f"{PROMPT} tokens in, {OUTPUT} out, {SLOTS} slots, {REQUESTS} Poisson arrivals a load; load 1 is what a "
            f"closed loop of {SLOTS} requests got, {served:.3g} requests/s",
        ),
    )


def _run(subject: Subject, scheduler: VllmScheduler, rate_per_s: float) -> dict[str, Any]:
    return subject.summary(a_client(PROMPT, OUTPUT, rate_per_s=rate_per_s), requests=REQUESTS, scheduler=scheduler)


class Slots(NamedTuple):
    """Slots at a load, by closed form."""

    busy: int
    slot_s: float
    """How long a request keeps one."""
    step_s: float
    wait_s: float
    """For the end of an iteration, and for a slot."""


def _slots(subject: Subject, load: float) -> Slots:
    """As many sequences as serve that load when they never rest; the wait is that of a queue for ``SLOTS`` servers."""
    deployment, cost = subject.deployment(), subject.envelope()
    full_s = saturated(cost, deployment, PROMPT, OUTPUT, SLOTS).request_s
    busy = sequences_for(cost, deployment, PROMPT, OUTPUT, load / full_s, SLOTS)
    found, slot_s = saturated(cost, deployment, PROMPT, OUTPUT, busy), busy * full_s / load
    wait_s = found.decode_step_s / 2 + mean_wait_s(slot_s, busy / SLOTS, servers=SLOTS)
    return Slots(busy, slot_s, found.decode_step_s, wait_s)


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    deployment = subject.deployment()
    bound = saturated(subject.envelope(), deployment, PROMPT, OUTPUT, SLOTS)
    terms = {"prompt": bound.prompt_s, "output": OUTPUT, "step": bound.decode_step_s, "slots": SLOTS}
    lines = [
        Line("rate", f"requests/s of {SLOTS} full slots", 1 / bound.request_s, "1/s",
             "1 / (prompt + (output - 1) * step / slots)", terms),
    ]  # fmt: skip
    for load in LOADS[:-1]:
        found = _slots(subject, load)
        names = {"step": found.step_s, "busy": found.busy, "slots": SLOTS, "slot": found.slot_s}
        formula = "step / 2 + (busy / slots)**((2 * (slots + 1))**0.5 - 1) / (slots - busy) / 2 * slot"
        lines.append(Line(f"busy_{load}", f"slots taken at load {load:g}", found.busy))
        if found.busy < SLOTS:
            lines.append(Line(f"wait_{load}", f"wait at load {load:g}", found.wait_s, "s", formula, names))
    return tuple(lines)


def _contrasts(subject: Subject, runs: dict[float, dict[str, Any]], served: float) -> tuple[Contrast, ...]:
    waits = []
    for load, run in runs.items():
        closed: float | None = _slots(subject, load).wait_s
        why = f"{run['running']['mean']:.0f} of {SLOTS} slots taken on average, {run['waiting']['mean']:.2g} wait"
        if 0.85 < load < 1:
            why += f"; {REQUESTS} arrivals end before the queue has grown"
        if load > 1:
            closed = (1 - 1 / load) * REQUESTS / served / 2
            why = "no steady state: it grows all through the test; half of its end"
        elif math.isinf(closed or 0.0):
            closed = None
        waited = run["queue_s"]["mean"] - subject.accelerator.efficiency.request_s
        waits.append(Contrast(f"wait_{load}", f"mean wait, load {load:g}", "s", closed, waited, why))
    tails = [
        Contrast(f"ttft_{load}", f"TTFT p99, load {load:g}", "s", None, runs[load]["ttft_s"]["p99"],
                 f"TPOT mean {format_duration(runs[load]['tpot_s']['mean'])}")
        for load in (LOADS[0], LOADS[-2], LOADS[-1])
    ]  # fmt: skip
    return (*waits, *tails)


def _short(runs: dict[float, dict[str, Any]], served: float) -> tuple[str, ...]:
    low, near, over = (runs[load]["ttft_s"]["p99"] for load in (LOADS[0], LOADS[-2], LOADS[-1]))
    tpot = [runs[load]["tpot_s"]["mean"] for load in (LOADS[0], LOADS[-1])]
    return (
        "TTFT is queue plus prefill, and a queue grows like 1 / (1 - load). While slots are free a request waits for "
        f"the next iteration only; once all {SLOTS} are taken it waits until another one ends. TTFT p99 is "
        f"{format_duration(low)} at {format_percent(LOADS[0])} of {served:.3g} requests/s, {format_duration(near)} at "
        f"{format_percent(LOADS[-2])}, {format_duration(over)} at {format_percent(LOADS[-1])}, where more comes than "
        "leaves and the wait is as long as the test.",
        f"TPOT does not show it: it goes from {format_duration(tpot[0])} to {format_duration(tpot[1])}, because slots "
        "bound the batch. So watch the queue, keep load well below 1 at the peak, and shed or scale before it.",
    )


def _picture(subject: Subject, runs: dict[float, dict[str, Any]]) -> Picture:
    drawn = [(k / 100, _slots(subject, k / 100).wait_s) for k in range(40, 100, 3)]
    finite = [(load, wait_s) for load, wait_s in drawn if math.isfinite(wait_s)]
    x, outside = tuple(float(load) for load in runs), subject.accelerator.efficiency.request_s
    return Picture(
        "Latency over load",
        "The line is the closed form of a queue for slots, points are simulated.",
        "load (share of what full slots serve)",
        "time (s)",
        (
            Series("mean wait, closed form", tuple(load for load, _ in finite), tuple(wait_s for _, wait_s in finite)),
            Series("mean wait", x, tuple(run["queue_s"]["mean"] - outside for run in runs.values()), "points"),
            Series("TTFT p99", x, tuple(run["ttft_s"]["p99"] for run in runs.values()), "points"),
        ),
        log_y=True,
        marks=((1.0, "saturation"),),
    )
