"""Serving 100 million daily users: GPUs for prefill, decode and memory, headroom, money; and one replica simulated."""

from typing import Any

from llmsim.closed_form import EnvelopeCost, FleetEstimate, Line, decodes, fleet, prompts, saturated, spent
from llmsim.cost import AnalyticCost
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import full, parts
from llmsim.study.planning import Traffic
from llmsim.units import format_count, format_percent, format_usd

USERS, REQUESTS_EACH, PEAK_TO_AVERAGE = 100e6, 5.0, 2.5
PROMPT, OUTPUT = 1000, 250
UTILISATION, SPARE, NODE = 0.7, 1.25, 8
BATCH, BATCHES = 256, (64, 128, 256, 384)
KV_BYTES_OF_GPU = 50e9
"""Left for KV on a GPU, roughly."""
ENVELOPE = EnvelopeCost(mfu=0.45)
"""Prefill in fp8 reaches a smaller share of its doubled peak."""
TTFT_S, TPOT_S = 2.0, 0.05
REQUESTS = 400


def answer(subject: Subject) -> Answer:
    """The answer for 5 requests a day of 1,000 tokens in and 250 out."""
    traffic = Traffic.of_users(USERS, REQUESTS_EACH, PEAK_TO_AVERAGE)
    arithmetic = _arithmetic(subject, traffic)
    worked = {line.key: line.value for line in arithmetic}
    contrasts = _contrasts(subject, worked)
    return Answer(
        short=_short(subject, worked, contrasts),
        arithmetic=arithmetic,
        contrasts=contrasts,
        pitfalls=(
            "Ask for token lengths, peak over average, and the SLO before any arithmetic",
            "Count memory for weights and KV cache, and check that it does not bind before compute does",
            "Size for the peak; the average only pays off with autoscaling, which must run ahead of the load",
            "The tail comes from queues, long prompts of others, preemptions and slow replicas: name the lever for "
            "each",
            "Levers on the tail: chunk budget, max_num_seqs, priority classes, prefix affinity with a cap on load, "
            "routing by outstanding requests, a pool for long prompts, shedding, headroom",
            "State each assumption with what the answer does when it is off",
        ),
        commands=(
            Command(
                "llmsim plan scenarios/hundred_million_users.toml --daily-users 100e6 --requests-per-user 5 "
                "--peak-to-average 2.5",
                "The search over hardware, with capacity measured",
            ),
            Command("llmsim ask 8 --model llama-3.1-8b", "Most requests may do with a small model"),
            Command(f"llmsim explain {subject.flags} --only capacity --batch {BATCH}", "The full model's capacity"),
        ),
        pictures=(_picture(subject, traffic),),
        notes=(
            f"{REQUESTS_EACH:.0f} requests a user and day, peak {PEAK_TO_AVERAGE} times the average, {PROMPT:,} "
            f"tokens in, {OUTPUT} out, MFU {ENVELOPE.mfu}, MBU {ENVELOPE.mbu}, {format_percent(UTILISATION)} "
            f"utilisation at peak, {SPARE} times that for the loss of a zone",
            f"Simulated: one replica, {BATCH} requests always in flight, and Poisson arrivals at "
            f"{format_percent(UTILISATION)} of what it then served",
        ),
    )


def _fleet(subject: Subject, traffic: Traffic, sequences: int = BATCH, cached_share: float = 0.0) -> FleetEstimate:
    deployment = subject.deployment()
    return fleet(ENVELOPE.start(deployment), deployment, traffic.peak_per_s, PROMPT, OUTPUT, sequences,
                 cached_share=cached_share, utilisation=UTILISATION, spare=SPARE)  # fmt: skip


def _arithmetic(subject: Subject, traffic: Traffic) -> tuple[Line, ...]:
    deployment = subject.deployment()
    found, cached = _fleet(subject, traffic), _fleet(subject, traffic, cached_share=0.5)
    cost, each = ENVELOPE.start(deployment), saturated(ENVELOPE.start(deployment), deployment, PROMPT, OUTPUT, BATCH)
    window = subject.model.sliding_window
    flop = spent(cost, prompts(1, PROMPT, window=window)).flop * subject.gpus / PROMPT
    read = spent(cost, decodes(BATCH, PROMPT + OUTPUT // 2, window)).hbm_bytes * subject.gpus
    day = {"users": USERS, "each": REQUESTS_EACH, "ratio": PEAK_TO_AVERAGE}
    peak, gpus = traffic.peak_per_s, subject.gpus
    terms = {
        "peak": peak,
        "gpus": gpus,
        "prompt_s": each.prompt_s,
        "output": OUTPUT,
        "step": found.step_s,
        "batch": BATCH,
    }
    raw = {"prefill": found.prefill_gpus, "decode": found.decode_gpus, "utilisation": UTILISATION, "spare": SPARE}
    decode_s = (OUTPUT - 1) * found.step_s
    lines = [
        Line("peak_per_s", "requests a second at peak", peak, "1/s", "users * each / 86400 * ratio", day),
        Line("flop_per_token", "FLOPs of a prompt token", flop, "FLOP"),
        Line("prefill_gpus", "GPUs for prefill", found.prefill_gpus, "", "peak * prompt_s * gpus", terms),
        Line("step_bytes", f"bytes of a decode step of {BATCH}, all GPUs", read, "bytes"),
        Line("step_s", f"decode step of {BATCH}", found.step_s, "s"),
        Line("decode_gpus", "GPUs for decode", found.decode_gpus, "", "peak * (output - 1) * step / batch * gpus",
             terms),
        Line("in_flight", "requests in flight (Little)", found.in_flight, "", "peak * (ttft + decode)",
             {"peak": peak, "ttft": 0.5, "decode": decode_s}),
        Line("kv_bytes", "their KV cache", found.kv_bytes, "bytes"),
        Line("kv_gpus", "GPUs that hold it", found.kv_bytes / KV_BYTES_OF_GPU, "", "kv / 50e9", {"kv": found.kv_bytes}),
        Line("raw_gpus", "GPUs at full load", found.raw_gpus, "", "prefill + decode", raw),
        Line("gpus", "with headroom", found.gpus, "", "(prefill + decode) / utilisation * spare", raw),
        Line("nodes", f"nodes of {NODE}", found.gpus / NODE, "", "gpus / 8", {"gpus": found.gpus}),
        Line("cached_gpus", "with half the prompt tokens cached", cached.gpus, "",
             "(prefill / 2 + decode) / utilisation * spare", raw),
    ]  # fmt: skip
    return (*lines, *_money(subject, found))


def _money(subject: Subject, found: FleetEstimate) -> list[Line]:
    """What the fleet costs; nothing where no price is known."""
    price = subject.accelerator.price_usd_per_hour
    if price is None:
        return []
    day, requests = found.usd_per_day(price), USERS * REQUESTS_EACH
    tokens = requests * (PROMPT + OUTPUT)
    return [
        Line("usd_per_day", "a day", day, "USD", "gpus * price * 24", {"gpus": found.gpus, "price": price}),
        Line("usd_per_thousand", "a thousand requests", day / requests * 1e3, "USD", "day / requests * 1e3",
             {"day": day, "requests": requests}),
        Line("usd_per_million_tokens", "a million tokens", day / tokens * 1e6, "USD", "day / tokens * 1e6",
             {"day": day, "tokens": tokens}),
        Line("usd_scaled", "a day, scaled with the load", day / PEAK_TO_AVERAGE * 1.3, "USD", "day / ratio * 1.3",
             {"day": day, "ratio": PEAK_TO_AVERAGE}),
    ]  # fmt: skip


def _contrasts(subject: Subject, worked: dict[str, float]) -> tuple[Contrast, ...]:
    deployment = subject.deployment()
    each = saturated(ENVELOPE.start(deployment), deployment, PROMPT, OUTPUT, BATCH)
    served = full(subject, BATCH, PROMPT, OUTPUT)
    rate = served["request_throughput_per_s"]
    loaded = _loaded(subject, UTILISATION * rate)
    gpus = worked["peak_per_s"] / rate * subject.gpus
    window = subject.model.sliding_window
    step = decodes(BATCH, PROMPT + OUTPUT // 2, window)
    simulated = saturated(AnalyticCost().start(deployment), deployment, PROMPT, OUTPUT, BATCH)
    fill = prompts(8, PROMPT, window=window)
    return (
        Contrast("rate", f"requests/s of a replica, {BATCH} in flight", "1/s", 1 / each.request_s, rate,
                 "prompts and steps as below, start and end of the run"),
        Contrast("prompt_s", "time of a prompt in full iterations", "s", each.prompt_s, simulated.prompt_s,
                 f"the cost model's iteration: {parts(deployment, fill)}"),
        Contrast("step_s", f"decode step of {BATCH}", "s", each.decode_step_s, simulated.decode_step_s,
                 f"the cost model's: {parts(deployment, step)}"),
        Contrast("raw_gpus", "GPUs at full load", "", worked["raw_gpus"], gpus, "follows from the rate"),
        Contrast("gpus", "GPUs with headroom", "", worked["gpus"], gpus / UTILISATION * SPARE, "the same headroom"),
        Contrast("tpot", f"TPOT mean, {BATCH} in flight", "s", each.tpot_s, served["tpot_s"]["mean"],
                 "prompts of others come between in both"),
        Contrast("ttft_p99", f"TTFT p99 at {format_percent(UTILISATION)}", "s", None, loaded["ttft_s"]["p99"],
                 f"limit {TTFT_S:g} s: {_kept(loaded['ttft_s']['p99'], TTFT_S)}"),
        Contrast("tpot_p99", f"TPOT p99 at {format_percent(UTILISATION)}", "s", None, loaded["tpot_s"]["p99"],
                 f"limit {1e3 * TPOT_S:g} ms: {_kept(loaded['tpot_s']['p99'], TPOT_S)}"),
    )  # fmt: skip


def _loaded(subject: Subject, rate_per_s: float) -> dict[str, Any]:
    return subject.summary(a_client(PROMPT, OUTPUT, rate_per_s=rate_per_s), requests=REQUESTS)


def _kept(value: float, limit: float) -> str:
    return "kept" if value <= limit else "missed"


def _short(subject: Subject, worked: dict[str, float], contrasts: tuple[Contrast, ...]) -> tuple[str, ...]:
    binding = "prefill" if worked["prefill_gpus"] > worked["decode_gpus"] else "decode"
    share = max(worked["prefill_gpus"], worked["decode_gpus"]) / worked["raw_gpus"]
    memory = "does not bind" if worked["kv_gpus"] < worked["raw_gpus"] else "binds"
    simulated = next(each.simulated for each in contrasts if each.key == "gpus") or 0.0
    money = ""
    if "usd_per_day" in worked:
        money = (
            f" At {format_usd(subject.accelerator.price_usd_per_hour or 0.0)} a GPU and hour that is "
            f"${worked['usd_per_day']:,.0f} a day, {format_usd(worked['usd_per_million_tokens'])} a million tokens."
        )
    return (
        f"State assumptions, then five lines. {REQUESTS_EACH:.0f} requests a user and day are "
        f"{worked['peak_per_s']:,.0f} a second at peak. Prefill is FLOPs: {worked['prefill_gpus']:,.0f} GPUs. Decode "
        f"is bytes, shared by a batch of {BATCH}: {worked['decode_gpus']:,.0f}. Memory: {worked['in_flight']:,.0f} "
        f"requests in flight hold {format_count(worked['kv_bytes'], 'B')} of KV, {worked['kv_gpus']:,.0f} GPUs, which "
        f"{memory}. Together {worked['raw_gpus']:,.0f} at full load, {format_percent(share)} of it {binding}; at "
        f"{format_percent(UTILISATION)} utilisation and {SPARE} for a lost zone {worked['gpus']:,.0f} GPUs.{money}",
        f"One replica simulated makes it {simulated:,.0f} GPUs. Half of the prompts from a prefix cache would bring "
        f"the closed form to {worked['cached_gpus']:,.0f}. For the tail: admission and shedding, chunked prefill, "
        "routing by outstanding requests with session affinity, pools by length, spare replicas ready before they "
        "are needed.",
    )


def _picture(subject: Subject, traffic: Traffic) -> Picture:
    found = [_fleet(subject, traffic, batch) for batch in BATCHES]
    names = tuple(map(str, BATCHES))
    return Picture(
        "GPUs at full load by decode batch",
        "Closed form. A larger batch shares the reading of weights; prefill stays.",
        "sequences that decode at once on a replica",
        "GPUs",
        (
            Series("prefill", names, tuple(each.prefill_gpus for each in found), "bars"),
            Series("decode", names, tuple(each.decode_gpus for each in found), "bars"),
        ),
    )
