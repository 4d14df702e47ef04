"""What max_num_batched_tokens does: chunks of prompts against gaps between tokens."""

from typing import Any

from llmsim.closed_form import Line, decodes, knee_tokens, prompts, saturated, together
from llmsim.deployment import batch_defaults
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import time_line
from llmsim.units import format_duration, format_percent

PROMPT, OUTPUT, RUNNING = 4000, 200, 32
BUDGETS = (256, 512, 1024, 2048, 8192)
LOAD, REQUESTS = 0.5, 200


def answer(subject: Subject) -> Answer:
    """The answer for prompts of 4,000 tokens beside 32 decodes."""
    prompt = min(PROMPT, subject.longest // 2)
    closed = {budget: _closed(subject, prompt, budget) for budget in BUDGETS}
    rate_per_s = LOAD / saturated(subject.envelope(), subject.deployment(), prompt, OUTPUT, RUNNING).request_s
    runs = {budget: _run(subject, prompt, budget, rate_per_s) for budget in BUDGETS}
    knee = knee_tokens(subject.envelope())
    default = batch_defaults(subject.accelerator)[0]
    return Answer(
        short=_short(subject, prompt, closed, runs, knee, default),
        arithmetic=_arithmetic(subject, prompt, closed, knee),
        contrasts=_contrasts(closed, runs),
        pitfalls=(
            "It bounds tokens of an iteration, prompts and decodes together, not requests (max_num_seqs) and not "
            "length",
            "Its activations take memory: a large budget shrinks the KV pool",
            "A budget below the knee makes prefill bound by memory: slower and no smoother",
            "Chunks read the keys and values of the chunks before them again: small ones repeat that more often",
            "Without chunked prefill it must hold the longest prompt",
        ),
        commands=(
            Command(
                "llmsim sweep scenarios/chat_h100.toml --grid "
                "pools.engine.scheduler.max_num_batched_tokens=1024,2048,8192 --set workload.requests=300 --metric "
                "itl_s.p99",
                "The same as a sweep on the chat of the README",
            ),
            Command(
                f"llmsim explain {subject.flags} --only memory --max-num-batched-tokens 16384",
                "What it costs in memory",
            ),
            Command("llmsim ask 6", "What users notice of it"),
        ),
        pictures=(_picture(closed, runs),),
        notes=(
            f"Prompts of {prompt:,} tokens, {OUTPUT} out, {REQUESTS} Poisson arrivals at {rate_per_s:.3g} requests/s, "
            f"{format_percent(LOAD)} of the closed form's, max_num_seqs 128; vLLM's default here is {default:,} tokens",
        ),
    )


def _closed(subject: Subject, prompt: int, budget: int) -> tuple[float, float]:
    """Seconds of the longest iteration, and of all iterations that a prompt takes beside ``RUNNING`` decodes."""
    cost, window = subject.envelope(), subject.model.sliding_window
    others, chunk = decodes(RUNNING, prompt, window), budget - RUNNING
    steps = [
        cost.step(together(prompts(1, min(chunk, prompt - start), start, window), others)).occupancy_s
        for start in range(0, prompt, chunk)
    ]
    return max(steps), sum(steps)


def _run(subject: Subject, prompt: int, budget: int, rate_per_s: float) -> dict[str, Any]:
    scheduler = VllmScheduler(max_num_batched_tokens=budget, max_num_seqs=128)
    return subject.summary(a_client(prompt, OUTPUT, rate_per_s=rate_per_s), requests=REQUESTS, scheduler=scheduler)


def _arithmetic(
    subject: Subject, prompt: int, closed: dict[int, tuple[float, float]], knee: int | None
) -> tuple[Line, ...]:
    deployment, window = subject.deployment(), subject.model.sliding_window
    others = decodes(RUNNING, prompt, window)
    lines = [time_line("step_s", f"{RUNNING} decodes alone", deployment, others)]
    for budget, (_, whole) in closed.items():
        chunk = min(prompt, budget - RUNNING)
        batch = together(prompts(1, chunk, prompt - chunk, window), others)
        lines.append(time_line(f"gap_{budget}", f"the same with the last {chunk:,} of a prompt", deployment, batch))
        lines.append(Line(f"ttft_{budget}", f"prompt of {prompt:,} in chunks of {chunk:,}", whole, "s"))
    if knee is not None:
        lines.append(Line("knee_tokens", "iterations bound by compute from (tokens)", knee, "tokens"))
    return tuple(lines)


def _contrasts(closed: dict[int, tuple[float, float]], runs: dict[int, dict[str, Any]]) -> tuple[Contrast, ...]:
    found = []
    for budget, run in runs.items():
        running = run["running"]["mean"]
        found += [
            Contrast(f"gap_{budget}", f"gap p99, budget {budget:,}", "s", closed[budget][0], run["itl_s"]["p99"],
                     f"an iteration that is full; longest {format_duration(run['itl_s']['max'])}, {running:.0f} run"),
            Contrast(f"ttft_{budget}", f"TTFT p50, budget {budget:,}", "s", closed[budget][1], run["ttft_s"]["p50"],
                     f"one prompt alone against queueing ones; p99 {format_duration(run['ttft_s']['p99'])}"),
        ]  # fmt: skip
    return tuple(found)


def _short(
    subject: Subject,
    prompt: int,
    closed: dict[int, tuple[float, float]],
    runs: dict[int, dict[str, Any]],
    knee: int | None,
    default: int,
) -> tuple[str, ...]:
    small, large = min(runs), max(runs)
    gaps, first = (
        {b: run["itl_s"]["p99"] for b, run in runs.items()},
        {b: run["ttft_s"]["p50"] for b, run in runs.items()},
    )
    best = min(first, key=first.__getitem__)
    floor = (
        f" Below about {knee} tokens here an iteration is bound by reading weights, so that prefill gets slower."
        if knee
        else ""
    )
    return (
        "It is the token budget of an iteration: running requests take one each, chunks of waiting prompts fill the "
        "rest. A large budget finishes prompts in few iterations, but every stream waits for the whole iteration: "
        f"with {large:,} a gap is {format_duration(gaps[large])} at p99, with {small:,} "
        f"{format_duration(gaps[small])} (simulated). The lowest median TTFT here has {best:,}: "
        f"{format_duration(first[best])}; {small:,} has {format_duration(first[small])}.{floor}",
        "Set it from the gap you allow: the largest budget whose full iteration is shorter than that. vLLM's API "
        f"server takes {default:,} on this accelerator.",
    )


def _picture(closed: dict[int, tuple[float, float]], runs: dict[int, dict[str, Any]]) -> Picture:
    x = tuple(map(float, BUDGETS))
    return Picture(
        "TTFT against gaps",
        "Lines are the closed form, points simulated.",
        "max_num_batched_tokens",
        "time (ms)",
        (
            Series("full iteration", x, tuple(1e3 * closed[b][0] for b in BUDGETS)),
            Series("prompt alone", x, tuple(1e3 * closed[b][1] for b in BUDGETS)),
            Series("gap p99", x, tuple(1e3 * runs[b]["itl_s"]["p99"] for b in BUDGETS), "points"),
            Series("TTFT p50", x, tuple(1e3 * runs[b]["ttft_s"]["p50"] for b in BUDGETS), "points"),
        ),
        log_x=True,
        log_y=True,
    )
