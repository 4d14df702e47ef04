"""fp8 or int4 weights, fp8 KV: what each buys in prefill, decode, memory and throughput."""

from typing import Any, NamedTuple

from llmsim.closed_form import Line, decodes, prompts, saturated
from llmsim.model import dtype_bytes
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject
from llmsim.questions.worked import ENVELOPE, decode_line, full, kernels_reach, mean
from llmsim.units import format_percent

PROMPT, OUTPUT, BATCH = 1800, 200, 64


class Way(NamedTuple):
    """Types of weights and KV."""

    name: str
    settings: dict[str, Any]


class Found(NamedTuple):
    """What one way does, closed form and simulated."""

    prefill_s: float
    step_s: float
    rate_per_s: float
    prompt_share: float
    """Of the time of a full engine, by closed form."""
    kv_tokens: int
    ttft_s: float
    """Alone, as the next two simulated; without the time outside the engine."""
    tpot_s: float
    served_per_s: float
    reach: str


def answer(subject: Subject) -> Answer:
    """The answer for 1,800 tokens in, 200 out."""
    ways = _ways(subject)
    found = {way.name: _found(subject, way) for way in ways}
    return Answer(
        short=_short(subject, ways, found),
        arithmetic=_arithmetic(subject, ways, found),
        contrasts=_contrasts(subject, found),
        pitfalls=(
            "Weights in int4 are multiplied in 16 bit: decode reads less, prefill gains nothing and may lose",
            "Prefill gains by fp8 only where the accelerator multiplies in fp8",
            "The KV cache has its own type: it decides how many sequences fit and what attention reads",
            "The LM head and embeddings stay in 16 bit: small models gain less than the ratio of bits",
            "Speed is half of the question: measure quality on your own task",
        ),
        commands=(
            Command(
                f"llmsim explain {subject.flags} --quantization fp8 --only decode --batch {BATCH}",
                "A decode step with fp8 weights",
            ),
            Command(f"llmsim explain {subject.flags} --kv-cache-dtype fp8 --only memory", "The pool with fp8 KV"),
            Command(
                "llmsim compare scenarios/chat_h100.toml scenarios/chat_h100.toml --set-b pools.quantization=fp8 "
                "--pairs 3 --set workload.requests=200",
                "fp8 against 16 bit by paired runs",
            ),
        ),
        pictures=(_picture(found),),
        notes=(f"{PROMPT:,} tokens in, {OUTPUT} out; throughput with {BATCH} requests in flight",),
    )


def _ways(subject: Subject) -> list[Way]:
    """What the model is published in, and everything narrower."""
    deployment = subject.deployment()
    present = dtype_bytes(deployment.weight_dtype)
    ways = [Way(f"{deployment.weight_dtype} weights, {deployment.kv_dtype} KV", {})]
    ways += [
        Way(f"{dtype} weights", {"quantization": dtype}) for dtype in ("fp8", "int4") if dtype_bytes(dtype) < present
    ]
    if dtype_bytes(deployment.kv_dtype) > 1:
        ways.append(Way("fp8 KV", {"kv_cache_dtype": "fp8"}))
        if present > 1:
            ways.append(Way("fp8 both", {"quantization": "fp8", "kv_cache_dtype": "fp8"}))
    return ways


def _found(subject: Subject, way: Way) -> Found:
    deployment, window = subject.deployment(**way.settings), subject.model.sliding_window
    cost = ENVELOPE.start(deployment)
    together = saturated(cost, deployment, PROMPT, OUTPUT, BATCH)
    alone = subject.alone(PROMPT, OUTPUT, **way.settings)
    return Found(
        prefill_s=cost.step(prompts(1, PROMPT, window=window)).latency_s,
        step_s=cost.step(decodes(1, PROMPT, window)).latency_s,
        rate_per_s=1 / together.request_s,
        prompt_share=together.prompt_share,
        kv_tokens=deployment.ledger().kv_tokens,
        ttft_s=mean(alone, "ttft") - subject.accelerator.efficiency.request_s,
        tpot_s=mean(alone, "tpot"),
        reach=kernels_reach(deployment, PROMPT),
        served_per_s=full(subject, BATCH, PROMPT, OUTPUT, **way.settings)["request_throughput_per_s"],
    )


def _arithmetic(subject: Subject, ways: list[Way], found: dict[str, Found]) -> tuple[Line, ...]:
    lines = []
    for way in ways:
        deployment = subject.deployment(**way.settings)
        each = found[way.name]
        lines += [
            Line(f"weights {way.name}", f"weights of a GPU: {way.name}", deployment.ledger().weights_bytes, "bytes"),
            Line(f"prefill {way.name}", f"prefill of {PROMPT:,} ({deployment.compute_dtype(deployment.weight_dtype)})",
                 each.prefill_s, "s"),
            decode_line(f"step {way.name}", "a decode step alone", deployment, 1, PROMPT),
            Line(f"kv {way.name}", "tokens in the KV pool", each.kv_tokens, "tokens"),
        ]  # fmt: skip
    return tuple(lines)


def _contrasts(subject: Subject, found: dict[str, Found]) -> tuple[Contrast, ...]:
    rows = []
    for name, each in found.items():
        rows += [
            Contrast(f"prefill {name}", f"prefill, {name}", "s", each.prefill_s, each.ttft_s,
                     each.reach),
            Contrast(f"step {name}", f"TPOT alone, {name}", "s", each.step_s, each.tpot_s,
                     "the fewer bytes, the more launches and host count"),
            Contrast(f"rate {name}", f"requests/s, {name}", "1/s", each.rate_per_s,
                     each.served_per_s,
                     f"{BATCH} in flight: prompts are {format_percent(each.prompt_share)} of the closed form's time"),
        ]  # fmt: skip
    return tuple(rows)


def _short(subject: Subject, ways: list[Way], found: dict[str, Found]) -> tuple[str, ...]:
    base = found[ways[0].name]
    told = []
    for way in ways[1:]:
        each = found[way.name]
        tpot = base.tpot_s / each.tpot_s
        rate = each.served_per_s / base.served_per_s
        told.append(
            f"{way.name}: prefill {base.ttft_s / each.ttft_s:.2f} times as fast, decode alone {tpot:.2f}, throughput "
            f"{rate:.2f}, KV pool {each.kv_tokens / base.kv_tokens:.2f} times"
        )
    narrower = "; ".join(told) if told else "nothing narrower than it is published in is offered here"
    eight = (
        "multiplies in fp8, so that fp8 weights also shorten the products of prefill"
        if "fp8" in subject.accelerator.peak_flop_per_s
        else ("does not multiply in fp8: fp8 weights save bytes only, prefill stays as it is")
    )
    return (
        "Ask what binds. Decode reads weights and KV: fewer bytes make it faster. Prefill multiplies: it gains only "
        f"where the product itself is done in the narrower type. This accelerator {eight}. int4 weights are expanded "
        "to 16 bit before the product. fp8 KV doubles the tokens that fit and halves what attention reads.",
        f"Simulated against {ways[0].name}: {narrower}.",
    )


def _picture(found: dict[str, Found]) -> Picture:
    names = tuple(found)
    base = next(iter(found.values()))
    return Picture(
        "Faster than the published types",
        "Simulated; 1 is the model as it is published.",
        "types",
        "times as fast",
        (
            Series(
                "prefill",
                names,
                tuple(base.ttft_s / each.ttft_s for each in found.values()),
                "bars",
            ),
            Series(
                "decode alone",
                names,
                tuple(base.tpot_s / each.tpot_s for each in found.values()),
                "bars",
            ),
            Series(
                "throughput",
                names,
                tuple(each.served_per_s / base.served_per_s for each in found.values()),
                "bars",
            ),
        ),
    )
