"""How much prefix caching saves: hits, TTFT and throughput with a shared system prompt."""

from typing import Any

from llmsim.closed_form import Line, prompts, saturated
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, users
from llmsim.questions.worked import decode_line, request_overhead, time_line
from llmsim.units import format_duration, format_percent

SHARED, OWN, OUTPUT, BATCH, BLOCK = 1600, 160, 200, 64, 16


def answer(subject: Subject) -> Answer:
    """The answer for a system prompt of 1,600 tokens before 160 own ones."""
    arithmetic = _arithmetic(subject)
    worked = {line.key: line.value for line in arithmetic}
    runs = {caches: _run(subject, caches) for caches in (False, True)}
    alone = {caches: _run(subject, caches, 1, 4) for caches in (False, True)}
    return Answer(
        short=_short(worked, runs),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, worked, runs, alone),
        pitfalls=(
            "Only whole blocks of an equal beginning hit: a date or a user's name at the top of the prompt ends it",
            "Decode gains nothing by it, but a batch that waits less for prompts of others decodes faster",
            "Cached blocks are free memory until they are needed: under pressure the oldest go first",
            "Behind a router hits depend on where the session goes",
            "A hit rate by tokens and one by requests are two numbers",
        ),
        commands=(
            Command("llmsim run scenarios/agents_prefix_cache.toml", "Agents, most of whose prompt is known"),
            Command(
                "llmsim run scenarios/agents_prefix_cache.toml --set pools.engine.enable_prefix_caching=false",
                "The same without the cache",
            ),
            Command("llmsim ask 5", "A chat that sends its history again"),
        ),
        pictures=(_picture(subject),),
        notes=(f"{BATCH} requests always in flight, {SHARED:,} shared and {OWN} own prompt tokens, {OUTPUT} out",),
    )


def _run(subject: Subject, caches: bool, count: int = BATCH, requests_each: int = 5) -> dict[str, Any]:
    client = users(count, OWN, OUTPUT, requests_each, shared_prefix_tokens=SHARED)
    return subject.summary(client, enable_prefix_caching=caches)


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    deployment, window = subject.deployment(), subject.model.sliding_window
    whole, hit = SHARED + OWN, SHARED // BLOCK * BLOCK
    plain = time_line("prefill_s", f"prefill of {whole:,}", deployment, prompts(1, whole, window=window))
    cached = time_line("cached_s", f"prefill of {whole - hit:,} after {hit:,} cached", deployment,
                       prompts(1, whole - hit, hit, window))  # fmt: skip
    full = saturated(subject.envelope(), deployment, whole, OUTPUT, BATCH)
    several = prompts(8, whole - hit, hit, window)
    part_s = subject.envelope().step(several).occupancy_s / 8
    after_s = full.request_s - full.prompt_s + part_s
    decode_s = full.request_s - full.prompt_s
    return (
        Line("hit", "share of prompt tokens cached", hit / whole, "share", "shared // block * block / prompt",
             {"shared": SHARED, "block": BLOCK, "prompt": whole}),
        plain,
        cached,
        decode_line("step_s", f"a decode step of {BATCH}", deployment, BATCH, whole + OUTPUT // 2),
        Line("rate", "requests/s without a cache", 1 / full.request_s, "1/s", "1 / (prompt + decode)",
             {"prompt": full.prompt_s, "decode": decode_s}),
        Line("cached_rate", "with it", 1 / after_s, "1/s", "1 / (prompt + decode)",
             {"prompt": part_s, "decode": decode_s}),
        Line("gain", "throughput gained", full.request_s / after_s - 1, "share", "cached / plain - 1",
             {"cached": 1 / after_s, "plain": 1 / full.request_s}),
        Line("most", "the most it could gain: no prefill at all", full.request_s / decode_s - 1, "share",
             "(prompt + decode) / decode - 1", {"prompt": full.prompt_s, "decode": decode_s}),
    )  # fmt: skip


def _contrasts(
    subject: Subject, worked: dict[str, float], runs: dict[bool, dict[str, Any]], alone: dict[bool, dict[str, Any]]
) -> tuple[Contrast, ...]:
    rates = {caches: run["request_throughput_per_s"] for caches, run in runs.items()}
    outside = request_overhead(subject)
    return (
        Contrast("hit", "prompt tokens cached", "share", worked["hit"], runs[True]["cached_prompt_share"],
                 "the first ones compute it: those at the start find nothing yet"),
        Contrast("ttft", "TTFT alone, no cache", "s", worked["prefill_s"], alone[False]["ttft_s"]["p50"],
                 f"{outside} outside"),
        Contrast("cached_ttft", "TTFT alone, cached", "s", worked["cached_s"], alone[True]["ttft_s"]["p50"],
                 f"{outside} outside are what is left"),
        Contrast("rate", "requests/s, no cache", "1/s", worked["rate"], rates[False], "kernels as fitted"),
        Contrast("cached_rate", "requests/s, cache", "1/s", worked["cached_rate"], rates[True],
                 "decode is what is left"),
        Contrast("gain", "throughput gained", "share", worked["gain"], rates[True] / rates[False] - 1,
                 "follows from the two"),
    )  # fmt: skip


def _short(worked: dict[str, float], runs: dict[bool, dict[str, Any]]) -> tuple[str, ...]:
    gain = runs[True]["request_throughput_per_s"] / runs[False]["request_throughput_per_s"] - 1
    return (
        f"It saves the prefill of what was computed before, to whole blocks, and nothing of decode. With {SHARED:,} "
        f"shared of {SHARED + OWN:,} prompt tokens {format_percent(worked['hit'])} hit: prefill falls from "
        f"{format_duration(worked['prefill_s'])} to {format_duration(worked['cached_s'])}. Throughput gains "
        f"{format_percent(worked['gain'])} by closed form and {format_percent(gain)} simulated, because decode stays; "
        f"without any prefill it would be {format_percent(worked['most'])}.",
        "So estimate three numbers: the share of prompt tokens that repeat, the share of GPU time that is prefill, and "
        "whether the blocks survive until the next request.",
    )


def _picture(subject: Subject) -> Picture:
    deployment, cost, window = subject.deployment(), subject.envelope(), subject.model.sliding_window
    whole = SHARED + OWN
    full = saturated(cost, deployment, whole, OUTPUT, BATCH)
    decode_s = full.request_s - full.prompt_s
    shares = [k / 20 for k in range(20)]
    rates = []
    for share in shares:
        hit = int(share * whole) // BLOCK * BLOCK
        prompt_s = cost.step(prompts(8, whole - hit, hit, window)).occupancy_s / 8
        rates.append(1 / (prompt_s + decode_s))
    return Picture(
        "Throughput over the share that hits",
        f"Closed form: {whole:,} prompt tokens, {OUTPUT} out, {BATCH} at once.",
        "share of prompt tokens cached",
        "requests a second",
        (Series("requests/s", tuple(shares), tuple(rates)),),
    )
