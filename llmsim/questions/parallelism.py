"""The same GPUs as one wide engine or as several: latency against throughput."""

from dataclasses import replace
from typing import Any

from llmsim.closed_form import Line, Saturation, prompts, saturated
from llmsim.cluster.router import LeastOutstanding
from llmsim.errors import ScenarioError
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client, sizes_of
from llmsim.questions.worked import ENVELOPE, decode_line, time_line
from llmsim.units import format_duration, format_percent

PROMPT, OUTPUT, BATCH = 1000, 250, 64
"""Tokens of a request, and sequences at once on the narrow engine."""
LOAD, REQUESTS = 0.6, 400


def answer(subject: Subject) -> Answer:
    """The answer for the smallest layout against four times as many GPUs in one engine, or twice where that is all."""
    wide = _wide(subject)
    replicas = wide.gpus // subject.gpus
    arithmetic = _arithmetic(subject, wide, replicas)
    worked = {line.key: line.value for line in arithmetic}
    rate = LOAD * min(worked["wide_rate"], worked["narrow_rate"])
    runs = {
        "narrow": _run(subject, rate, replicas),
        "wide": _run(wide, rate, 1),
    }
    full = {"narrow": _full(subject, replicas), "wide": _full(wide, 1)}
    return Answer(
        short=_short(subject, wide, replicas, worked, runs, full),
        arithmetic=arithmetic,
        contrasts=_contrasts(wide, replicas, worked, runs, full),
        pitfalls=(
            "All-reduces come twice a layer: over PCIe or between nodes they eat what tensor parallelism gains",
            "KV heads divide until one is left; beyond that tensor parallelism copies the KV cache",
            "Replicas split the prefix cache: route sessions to where their history is",
            "One wide engine is one failure, several lose a part",
            "Weights are held once per replica: a wide engine leaves more memory for KV",
        ),
        commands=(
            Command(f"llmsim explain {wide.flags} --only decode --batch {BATCH}", "A decode step of the wide engine"),
            Command(
                f"llmsim run scenarios/chat_h100.toml {subject.settings} --set pools.replicas={replicas} --set "
                "workload.rate_per_s=15",
                "The chat of the README on replicas",
            ),
            Command(
                f"llmsim run scenarios/chat_h100.toml {wide.settings} --set workload.rate_per_s=15",
                "and on the wide engine",
            ),
        ),
        pictures=(_picture(wide, replicas, runs),),
        notes=(
            f"{PROMPT:,} tokens in and {OUTPUT} out; latencies at {format_percent(LOAD)} of the smaller closed-form "
            f"rate, {rate:.3g} requests/s; throughput with {BATCH} requests in flight for each narrow engine",
        ),
    )


def _wide(subject: Subject) -> Subject:
    """One engine of four or two times as many GPUs in a node."""
    for size in (4 * subject.gpus, 2 * subject.gpus):
        if size in sizes_of(subject):
            return replace(subject, tensor_parallel_size=size)
    raise ScenarioError(
        f"{subject.described}: no wider engine fits its node of {subject.accelerator.accelerators_per_node}; "
        "allowed: a model and accelerator of which a node has room for twice the tensor parallel size"
    )


def _saturated(subject: Subject, sequences: int) -> Saturation:
    deployment = subject.deployment()
    return saturated(ENVELOPE.start(deployment), deployment, PROMPT, OUTPUT, sequences)


def _arithmetic(subject: Subject, wide: Subject, replicas: int) -> tuple[Line, ...]:
    found = []
    for key, each, count in (("narrow", subject, replicas), ("wide", wide, 1)):
        deployment, batch = each.deployment(), BATCH * replicas // count
        label = f"TP {each.gpus}"
        full = _saturated(each, batch)
        terms = {
            "engines": count,
            "prompt": full.prompt_s,
            "output": OUTPUT,
            "step": full.decode_step_s,
            "batch": batch,
        }
        rate = count / full.request_s
        found += [
            time_line(f"{key}_prefill_s", f"prefill of {PROMPT:,}, {label}", deployment, prompts(1, PROMPT)),
            decode_line(f"{key}_step_s", f"a decode step alone, {label}", deployment, 1, PROMPT),
            Line(f"{key}_rate", f"requests/s, {count} x {label}, {batch} at once", rate, "1/s",
                 "engines / (prompt + (output - 1) * step / batch)", terms),
            Line(f"{key}_kv", f"KV tokens in all, {count} x {label}", count * deployment.ledger().kv_tokens, "tokens"),
        ]  # fmt: skip
    return tuple(found)


def _run(subject: Subject, rate_per_s: float, replicas: int) -> dict[str, Any]:
    client = a_client(PROMPT, OUTPUT, rate_per_s=rate_per_s)
    return subject.summary(client, requests=REQUESTS, replicas=replicas, router=LeastOutstanding())


def _full(subject: Subject, replicas: int) -> dict[str, Any]:
    count = BATCH * 4 if replicas == 1 else BATCH * replicas
    client = a_client(PROMPT, OUTPUT, users=count, requests_per_user=2)
    return subject.summary(client, replicas=replicas)


def _contrasts(
    wide: Subject, replicas: int, worked: dict[str, float], runs: dict[str, Any], full: dict[str, Any]
) -> tuple[Contrast, ...]:
    names = {"narrow": f"{replicas} x TP {wide.gpus // replicas}", "wide": f"TP {wide.gpus}"}
    found = []
    for key, name in names.items():
        found += [
            Contrast(f"{key}_ttft", f"TTFT p50, {name}", "s", worked[f"{key}_prefill_s"], runs[key]["ttft_s"]["p50"],
                     "closed form alone; simulated with others, and time outside the engine"),
            Contrast(f"{key}_tpot", f"TPOT p50, {name}", "s", worked[f"{key}_step_s"], runs[key]["tpot_s"]["p50"],
                     f"closed form alone; {runs[key]['running']['mean']:.0f} run on average"),
            Contrast(f"{key}_rate", f"requests/s full, {name}", "1/s", worked[f"{key}_rate"],
                     full[key]["request_throughput_per_s"], "fitted kernels, launches, real all-reduces"),
        ]  # fmt: skip
    return tuple(found)


def _short(
    subject: Subject, wide: Subject, replicas: int, worked: dict[str, float], runs: dict[str, Any], full: dict[str, Any]
) -> tuple[str, ...]:
    tpot = {key: runs[key]["tpot_s"]["p50"] for key in runs}
    rate = {key: full[key]["request_throughput_per_s"] for key in full}
    faster, more = tpot["narrow"] / tpot["wide"], rate["narrow"] / rate["wide"]
    latency = "lower" if faster > 1 else "no lower"
    winner = "replicas serve" if more > 1 else "the wide engine serves"
    factor = max(more, 1 / more)
    return (
        f"Tensor parallelism buys latency, replicas buy throughput. On {wide.gpus} GPUs, one engine of TP {wide.gpus} "
        f"has {latency} TPOT than {replicas} of TP {subject.gpus} at the same load ({format_duration(tpot['wide'])} "
        f"against {format_duration(tpot['narrow'])}, simulated), because each GPU reads a part of the weights; but "
        f"not {replicas} times: all-reduces, launches and smaller products stay. Full, {winner} "
        f"{format_percent(factor - 1)} more requests a second.",
        "So: enough tensor parallelism that the model and a useful batch fit and TPOT keeps its limit, then "
        f"replicas. Stay within a node for tensor parallelism. KV space differs too: {worked['wide_kv']:,.0f} tokens "
        f"in the wide engine, {worked['narrow_kv']:,.0f} in all the others together.",
    )


def _picture(wide: Subject, replicas: int, runs: dict[str, Any]) -> Picture:
    names = (f"{replicas} x TP {wide.gpus // replicas}", f"TP {wide.gpus}")
    series = tuple(
        Series(label, names, tuple(1e3 * runs[key][metric]["p50"] for key in ("narrow", "wide")), "bars")
        for label, metric in (("TTFT p50", "ttft_s"), ("TPOT p50", "tpot_s"))
    )
    return Picture("The same GPUs, the same requests", "Simulated medians.", "layout", "time (ms)", series)
