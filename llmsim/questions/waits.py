"""The two waits of a streamed answer, and how the scheduler trades one for the other."""

from typing import Any

from llmsim.closed_form import (
    Line,
    decodes,
    latency_s,
    prompts,
    reading_tokens_per_s,
    saturated,
    together,
)
from llmsim.engine.settings import SchedulerSpec
from llmsim.engine.vllm import VllmScheduler
from llmsim.engine.vllm_v0 import VllmV0Scheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import decode_line, time_line
from llmsim.units import format_duration, format_percent
from llmsim.workload.lengths import Lognormal

PROMPT, OUTPUT, HIDDEN = 1000, 300, 2000
BATCH, LOAD, REQUESTS = 32, 0.6, 300
SMALL, LARGE = 512, 2048
"""Chunk budgets, tokens."""


def answer(subject: Subject) -> Answer:
    """The answer for 1,000 tokens in and 300 out."""
    arithmetic = _arithmetic(subject)
    worked = {line.key: line.value for line in arithmetic}
    rate_per_s = LOAD / saturated(subject.envelope(), subject.deployment(), PROMPT, OUTPUT, 8 * BATCH).request_s
    runs = {name: _run(subject, scheduler, rate_per_s) for name, scheduler in _schedulers(subject).items()}
    return Answer(
        short=_short(worked, runs),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, worked, runs),
        pitfalls=(
            "Mean TPOT hides stalls: look at p99 of the gaps and at the longest",
            "Streaming changes neither E2E nor cost",
            "JSON, tool calls and agents wait for the end, speech for the first sentence: for them E2E counts",
            "Proxies and server-sent events may buffer what the engine streams",
            "Faster than twice the speed of reading is not seen by readers, but paid for",
        ),
        commands=(
            Command(
                "llmsim run scenarios/chat_h100.toml --set pools.engine.scheduler.max_num_batched_tokens=1024",
                "Smaller chunks on the chat of the README",
            ),
            Command(
                "llmsim why scenarios/chat_h100.toml --metric tpot --set workload.requests=500",
                "What the slowest streams wait for",
            ),
            Command("llmsim ask 12", "The chunk budget on its own"),
        ),
        pictures=(_picture(subject, runs),),
        notes=(
            f"Simulated: {REQUESTS} requests, prompts of {PROMPT:,} tokens on average (p99 four times that), {OUTPUT} "
            f"out, at {format_percent(LOAD)} of what the closed form serves, {rate_per_s:.3g} a second; the same for "
            "each scheduler",
        ),
    )


def _schedulers(subject: Subject) -> dict[str, SchedulerSpec]:
    return {
        "prompts first": VllmV0Scheduler(max_num_seqs=256),
        f"chunks of {LARGE}": VllmScheduler(max_num_batched_tokens=LARGE, max_num_seqs=256),
        f"chunks of {SMALL}": VllmScheduler(max_num_batched_tokens=SMALL, max_num_seqs=256),
    }


def _run(subject: Subject, scheduler: SchedulerSpec, rate_per_s: float) -> dict[str, Any]:
    longest = min(4 * PROMPT, subject.longest - OUTPUT)
    client = a_client(Lognormal(mean=PROMPT, p99=max(longest, PROMPT + 1)), OUTPUT, rate_per_s=rate_per_s)
    served = min(8 * PROMPT, subject.longest)
    return subject.summary(client, requests=REQUESTS, scheduler=scheduler, max_model_len=served)


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    deployment, window = subject.deployment(), subject.model.sliding_window
    ttft = time_line("ttft_s", f"TTFT: prefill of {PROMPT:,}", deployment, prompts(1, PROMPT, window=window))
    step = decode_line("tpot_s", f"TPOT: a decode step of {BATCH}", deployment, BATCH, PROMPT + OUTPUT // 2)
    terms = {"ttft": ttft.value, "output": OUTPUT, "tpot": step.value}
    e2e = latency_s(ttft.value, step.value, OUTPUT)
    read = reading_tokens_per_s()
    return (
        ttft,
        step,
        Line("e2e_s", f"E2E of {OUTPUT} tokens: the wait without streaming", e2e, "s", "ttft + (output - 1) * tpot",
             terms),
        Line("hidden", "of it hidden by streaming", 1 - ttft.value / e2e, "share", "1 - ttft / e2e",
             {"ttft": ttft.value, "e2e": e2e}),
        Line("reading", "a reader's tokens a second", read, "1/s", "250 / 60 / 0.75"),
        Line("faster", "streaming over reading speed", 1 / step.value / read, "", "1 / tpot / reading",
             {"tpot": step.value, "reading": read}),
        Line("answer_s", f"first answer token after {HIDDEN:,} hidden ones", ttft.value + HIDDEN * step.value, "s",
             "ttft + hidden * tpot", {"ttft": ttft.value, "hidden": HIDDEN, "tpot": step.value}),
    )  # fmt: skip


def _contrasts(subject: Subject, worked: dict[str, float], runs: dict[str, dict[str, Any]]) -> tuple[Contrast, ...]:
    cost, window = subject.envelope(), subject.model.sliding_window
    others = decodes(BATCH, PROMPT + OUTPUT // 2, window)
    closed = {
        "prompts first": cost.step(prompts(1, PROMPT, window=window)).occupancy_s + cost.step(others).occupancy_s,
        f"chunks of {LARGE}": cost.step(together(prompts(2, LARGE // 2, window=window), others)).occupancy_s,
        f"chunks of {SMALL}": cost.step(together(prompts(1, SMALL, window=window), others)).occupancy_s,
    }
    first = runs["prompts first"]
    found = [
        Contrast("tpot", "TPOT, mean, prompts first", "s", worked["tpot_s"], first["tpot_s"]["mean"],
                 f"{first['running']['mean']:.0f} run on average, not {BATCH}, and prompts come between"),
    ]  # fmt: skip
    for name, run in runs.items():
        found.append(Contrast(f"ttft {name}", f"TTFT p99, {name}", "s", None, run["ttft_s"]["p99"],
                              f"median {format_duration(run['ttft_s']['p50'])}"))  # fmt: skip
    for name, run in runs.items():
        found.append(Contrast(f"gap {name}", f"gap p99, {name}", "s", closed[name], run["itl_s"]["p99"],
                              f"closed: one full iteration beside {BATCH} decodes; longest "
                              f"{format_duration(run['itl_s']['max'])}"))  # fmt: skip
    return tuple(found)


def _short(worked: dict[str, float], runs: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    gaps = {name: run["itl_s"]["p99"] for name, run in runs.items()}
    first = {name: run["ttft_s"]["p50"] for name, run in runs.items()}
    soonest, smoothest = min(first, key=first.__getitem__), min(gaps, key=gaps.__getitem__)
    traded = (
        f"Schedulers trade one for the other: here {soonest} has the lowest median TTFT "
        f"({format_duration(first[soonest])}) with gaps of {format_duration(gaps[soonest])} at p99, {smoothest} the "
        f"smallest gaps ({format_duration(gaps[smoothest])}) with a TTFT of {format_duration(first[smoothest])}."
        if soonest != smoothest
        else f"Here {soonest} has both the lowest median TTFT and the smallest gaps at p99."
    )
    return (
        "The wait for the first token (TTFT) and the waits between tokens (TPOT, and its jitter). Streaming turns "
        f"the wait one feels from the whole answer, {format_duration(worked['e2e_s'])} for {OUTPUT} tokens, into "
        f"TTFT, {format_duration(worked['ttft_s'])}. So TTFT matters most, as long as tokens come faster than one "
        f"reads: {worked['reading']:.1f} a second. Here they come {worked['faster']:.1f} times as fast.",
        traded + " A reasoning model streams what nobody reads: its first wait is TTFT and all hidden tokens, "
        f"{format_duration(worked['answer_s'])} for {HIDDEN:,}.",
    )


def _picture(subject: Subject, runs: dict[str, dict[str, Any]]) -> Picture:
    names = tuple(runs)
    series = tuple(
        Series(label, names, tuple(1e3 * runs[name][metric][statistic] for name in names), "bars")
        for label, metric, statistic in (
            ("TTFT p50", "ttft_s", "p50"), ("TTFT p99", "ttft_s", "p99"), ("gap p99", "itl_s", "p99"), ("longest gap",
                                                                                                        "itl_s", "max"),
        )
    )  # fmt: skip
    return Picture("One trace, three schedulers", "The same requests, simulated.", "scheduler", "time (ms)", series)
