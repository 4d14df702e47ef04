"""How vLLM runs a model efficiently: one feature after another on the same requests."""

from typing import Any, NamedTuple

import numpy as np

from llmsim.closed_form import Line, saturated, sequences_in_pool
from llmsim.engine.orca import OrcaScheduler
from llmsim.engine.settings import SchedulerSpec
from llmsim.engine.static import StaticScheduler
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.units import format_duration
from llmsim.workload.lengths import Lognormal

SHARED, PROMPT, OUTPUT, LIMIT = 500, 300, 200, 1200
"""Tokens: of a system prompt, of what is new, of the answer, and max_tokens of a request."""
POOL, BLOCK, SLOTS, REQUESTS = 65_536, 16, 256, 300


class Rung(NamedTuple):
    """One engine of the ladder."""

    name: str
    adds: str
    scheduler: SchedulerSpec
    caches: bool = False


RUNGS = (
    Rung("static", "batches that end together, padded, KV reserved", StaticScheduler(max_num_seqs=SLOTS)),
    Rung("continuous", "requests join and leave between iterations", OrcaScheduler(max_num_seqs=SLOTS)),
    Rung("paged", "KV in blocks as tokens come: a larger batch",
         VllmScheduler(max_num_seqs=SLOTS, enable_chunked_prefill=False, async_scheduling=False)),
    Rung("chunked", "prompts in chunks beside decodes, scheduled ahead",
         VllmScheduler(max_num_seqs=SLOTS, max_num_batched_tokens=1024)),
    Rung("prefix cache", "the system prompt is computed once",
         VllmScheduler(max_num_seqs=SLOTS, max_num_batched_tokens=1024), True),
)  # fmt: skip


def answer(subject: Subject) -> Answer:
    """The answer for requests that share a system prompt and have answers of very different lengths."""
    arithmetic = _arithmetic(subject)
    worked = {line.key: line.value for line in arithmetic}
    runs = {rung.name: _run(subject, rung) for rung in RUNGS}
    return Answer(
        short=_short(runs),
        arithmetic=arithmetic,
        contrasts=_contrasts(worked, runs),
        pitfalls=(
            "Scheduling happens at every iteration: who runs is decided anew, running requests first, then the queue",
            "Tokens of an iteration are limited by max_num_batched_tokens, requests by max_num_seqs",
            "When blocks run out the newest request is preempted and computed again later: latency, not an error",
            '"Maximum concurrency" of the start-up log is not a limit (llmsim ask 18)',
            "Paged attention reads keys and values through a table: a kernel of its own, slightly slower than "
            "contiguous",
            "At small models the host is the bottleneck: scheduling, tokenising, sampling",
        ),
        commands=(
            Command("llmsim catalog schedulers vllm", "What the scheduler can be told"),
            Command(
                "llmsim run scenarios/agents_prefix_cache.toml --set pools.engine.enable_prefix_caching=false",
                "Agents without a prefix cache",
            ),
            Command(
                'llmsim vllm "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128"',
                "Your own serve command as a scenario",
            ),
        ),
        pictures=(_picture(runs),),
        notes=(
            f"{REQUESTS} requests at once, {SHARED} shared and {PROMPT} own prompt tokens, {OUTPUT} out on average "
            f"(p99 five times that), max_tokens {LIMIT:,}, on a KV pool of {POOL:,} tokens, so that memory matters",
        ),
    )


def _run(subject: Subject, rung: Rung) -> dict[str, Any]:
    client = a_client(PROMPT, Lognormal(mean=OUTPUT, p99=5 * OUTPUT), users=REQUESTS, requests_per_user=1,
                      shared_prefix_tokens=SHARED, max_tokens=LIMIT)  # fmt: skip
    return subject.summary(
        client,
        scheduler=rung.scheduler,
        enable_prefix_caching=rung.caches,
        num_gpu_blocks_override=subject.blocks_of_pool(POOL),
        max_model_len=min(subject.model.max_position_embeddings, 8192),
    )


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    deployment, cost = subject.deployment(), subject.envelope()
    prompt = SHARED + PROMPT
    reserved = sequences_in_pool(POOL, prompt + LIMIT, BLOCK)
    paged = min(SLOTS, sequences_in_pool(POOL, prompt + OUTPUT // 2, BLOCK))
    outputs = Lognormal(mean=OUTPUT, p99=5 * OUTPUT).quantile(np.array([1 - 1 / reserved]))
    longest = min(LIMIT, int(outputs[0]))
    rates = {
        "continuous": saturated(cost, deployment, prompt, OUTPUT, reserved),
        "paged": saturated(cost, deployment, prompt, OUTPUT, paged),
    }
    pool = {"pool": POOL, "block": BLOCK}

    def rate(key: str, label: str, prompt_s: float, output: float, step_s: float, batch: int) -> Line:
        terms = {"prompt": prompt_s, "output": output, "step": step_s, "batch": batch}
        value = 1 / (prompt_s + (output - 1) * step_s / batch)
        return Line(key, label, value, "1/s", "1 / (prompt + (output - 1) * step / batch)", terms)

    small, large = rates["continuous"], rates["paged"]
    return (
        Line("reserved", "requests at once, max_tokens reserved", reserved, "", "pool // block // blocks",
             {**pool, "blocks": -(-(prompt + LIMIT) // BLOCK)}),
        Line("paged_at_once", "requests at once, paged", paged, "", f"min({SLOTS}, pool // block // blocks)",
             {**pool, "blocks": -(-(prompt + OUTPUT // 2) // BLOCK)}),
        Line("longest", f"longest answer of {reserved}", longest, "tokens"),
        rate("static", "static: all wait for the longest", small.prompt_s, longest, small.decode_step_s, reserved),
        rate("continuous", "continuous", small.prompt_s, OUTPUT, small.decode_step_s, reserved),
        rate("paged", "paged", large.prompt_s, OUTPUT, large.decode_step_s, paged),
        rate("prefix cache", "with the system prompt cached", large.prompt_s * PROMPT / prompt, OUTPUT,
             large.decode_step_s, paged),
    )  # fmt: skip


def _contrasts(worked: dict[str, float], runs: dict[str, dict[str, Any]]) -> tuple[Contrast, ...]:
    why = {rung.name: rung.adds for rung in RUNGS}
    rates = [
        Contrast(name, f"requests/s, {name}", "1/s", worked.get(name), run["request_throughput_per_s"], why[name])
        for name, run in runs.items()
    ]
    gaps = [
        Contrast(f"gap {name}", f"gap p99, {name}", "s", None, runs[name]["itl_s"]["p99"],
                 f"TTFT p50 {format_duration(runs[name]['ttft_s']['p50'])}")
        for name in ("paged", "chunked")
    ]  # fmt: skip
    return (*rates, *gaps)


def _short(runs: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    rate = {name: run["request_throughput_per_s"] for name, run in runs.items()}
    best = max(rate.values()) / rate["static"]
    steps = ", ".join(f"{name} {value:.3g}" for name, value in rate.items())
    return (
        "An engine loop around one idea: decide anew at every iteration. The scheduler gives each running request "
        "its next token, then fills the token budget with chunks of waiting prompts, as far as slots and KV blocks "
        "go. The KV cache is paged: blocks of 16 tokens, a table per sequence, counted references, a hash per block "
        "that finds shared prefixes, preemption of the newest when blocks run out. The model runner computes one "
        "flat batch of all tokens with paged attention and CUDA graphs; sampled tokens are detokenised and streamed "
        "while the next iteration runs.",
        f"Each feature on the same requests, in requests/s: {steps}. The best is {best:.1f} times static batching.",
    )


def _picture(runs: dict[str, dict[str, Any]]) -> Picture:
    names = tuple(runs)
    return Picture(
        "One feature after another",
        "The same requests, simulated; every bar adds to the one before.",
        "engine",
        "requests a second",
        (Series("throughput", names, tuple(runs[name]["request_throughput_per_s"] for name in names), "bars"),),
    )
