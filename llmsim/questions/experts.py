"""Mixture of experts or dense: what a token computes and what a batch reads, against a model of the same size."""

from dataclasses import replace
from typing import NamedTuple

from llmsim import catalog
from llmsim.closed_form import Line, decodes, prompts, saturated, spent
from llmsim.cost.layers import experts_touched
from llmsim.errors import ScenarioError
from llmsim.model import load_model
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, subject_of
from llmsim.questions.worked import ENVELOPE, decode_line, full, time_line
from llmsim.units import format_bytes, format_count, format_duration

PROMPT, OUTPUT, BATCH, BATCHES = 1000, 200, 64, (1, 4, 16, 64, 256)

LONG = 32_768
"""Tokens of context from which on a model counts as one that is still chosen."""


class Pair(NamedTuple):
    """A mixture of experts and a dense model on the same GPUs."""

    experts: Subject
    dense: Subject


def answer(subject: Subject) -> Answer:
    """The answer for the model against the one of the other kind that is nearest in size."""
    pair = _pair(subject)
    arithmetic = _arithmetic(pair)
    worked = {line.key: line.value for line in arithmetic}
    contrasts = _contrasts(pair, worked)
    return Answer(
        short=_short(pair, worked, contrasts),
        arithmetic=arithmetic,
        contrasts=contrasts,
        pitfalls=(
            "Memory holds all experts, a token computes a few: cheap FLOPs, not cheap GPUs",
            "A batch of some tens of tokens visits nearly every expert: then decode reads all of them",
            "Each expert sees a part of the batch: its products stay small and bound by memory",
            "Expert parallelism adds exchanges and waits for the most loaded rank",
            "Compare at equal quality: total and active parameters are both poor measures of it",
        ),
        commands=(
            Command(f"llmsim explain {pair.experts.flags} --only decode --batch 1", "A decode step of one sequence"),
            Command(f"llmsim explain {pair.experts.flags} --only decode --batch {BATCH}", f"and of {BATCH}"),
            Command("llmsim ask 16 --model gpt-oss-20b", "Another mixture"),
        ),
        pictures=(_picture(pair),),
        notes=(
            f"{pair.experts.model.name} beside {pair.dense.model.name}, the nearest in size with {LONG:,} tokens of "
            f"context, both on {pair.experts.gpus} GPU{'s' * (pair.experts.gpus > 1)}; {PROMPT:,} tokens in, {OUTPUT} "
            "out",
            "Experts are visited evenly, without expert parallelism",
        ),
    )


def _pair(subject: Subject) -> Pair:
    """The subject's model and its counterpart, on as many GPUs as the larger needs."""
    wants_experts, size = subject.model.moe is None, subject.model.parameters
    models = [load_model(name) for name in catalog.names("models")]
    others = sorted(
        (each for each in models if (each.moe is not None) == wants_experts and each.max_position_embeddings >= LONG),
        key=lambda each: max(each.parameters / size, size / each.parameters),
    )
    for other in others[:8]:
        try:
            found = subject_of(other.name, subject.names[1])
        except ScenarioError:
            continue
        ranks = max(found.gpus, subject.gpus)
        both = [replace(each, tensor_parallel_size=ranks) for each in (subject, found)]
        try:
            for each in both:
                each.deployment().ledger()
        except ScenarioError:
            continue
        return Pair(*(both[::-1] if wants_experts else both))
    raise ScenarioError(f"{subject.described}: no model of the other kind of about its size fits these GPUs")


def _arithmetic(pair: Pair) -> tuple[Line, ...]:
    lines = []
    for key, each in (("experts", pair.experts), ("dense", pair.dense)):
        name, deployment = each.model.name, each.deployment()
        cost, window = ENVELOPE.start(deployment), each.model.sliding_window
        flop = spent(cost, prompts(1, PROMPT, window=window)).flop * each.gpus / PROMPT
        full_batch = saturated(cost, deployment, PROMPT, OUTPUT, BATCH)
        terms = {"prompt": full_batch.prompt_s, "output": OUTPUT, "step": full_batch.decode_step_s, "batch": BATCH}
        lines += [
            Line(f"{key}_weights", f"weights, {name}", deployment.ledger().weights_bytes * each.gpus, "bytes"),
            Line(f"{key}_flop", f"FLOPs of a prompt token, {name}", flop, "FLOP"),
            time_line(f"{key}_prefill_s", f"prefill of {PROMPT:,}, {name}", deployment,
                      prompts(1, PROMPT, window=window)),
            decode_line(f"{key}_step_s", f"a decode step alone, {name}", deployment, 1, PROMPT),
            decode_line(f"{key}_batch_s", f"a decode step of {BATCH}, {name}", deployment, BATCH, PROMPT),
            Line(f"{key}_rate", f"requests/s, {BATCH} at once, {name}", 1 / full_batch.request_s, "1/s",
                 "1 / (prompt + (output - 1) * step / batch)", terms),
        ]  # fmt: skip
    moe = pair.experts.model.moe
    if moe is not None:
        for batch, tokens in ((1, "1 token visits"), (BATCH, f"{BATCH} tokens visit")):
            touched = float(experts_touched(pair.experts.deployment(), batch))
            lines.append(
                Line(f"touched_{batch}", f"experts of a layer that {tokens}", touched, "",
                     "experts * (1 - (1 - chosen / experts)**tokens)",
                     {"experts": moe.num_experts, "chosen": moe.num_experts_per_tok, "tokens": batch})
            )  # fmt: skip
    return tuple(lines)


def _contrasts(pair: Pair, worked: dict[str, float]) -> tuple[Contrast, ...]:
    found = []
    for key, each in (("experts", pair.experts), ("dense", pair.dense)):
        name = "experts" if key == "experts" else "dense"
        alone = each.alone(PROMPT, OUTPUT)
        served = full(each, BATCH, PROMPT, OUTPUT)
        why = (
            "small products of experts use bandwidth and FLOP/s less well" if key == "experts" else "kernels as fitted"
        )
        found += [
            Contrast(f"{key}_ttft", f"TTFT alone, {name}", "s", worked[f"{key}_prefill_s"], alone["ttft_s"]["mean"],
                     why),
            Contrast(f"{key}_tpot", f"TPOT alone, {name}", "s", worked[f"{key}_step_s"], alone["tpot_s"]["mean"],
                     "launches of many small kernels" if key == "experts" else why),
            Contrast(f"{key}_rate", f"requests/s, {BATCH} at once, {name}", "1/s", worked[f"{key}_rate"],
                     served["request_throughput_per_s"], why),
        ]  # fmt: skip
    return tuple(found)


def _short(pair: Pair, worked: dict[str, float], contrasts: tuple[Contrast, ...]) -> tuple[str, ...]:
    seen = {each.key: each.simulated or 0.0 for each in contrasts}
    moe, model = pair.experts.model.moe, pair.experts.model
    chosen = f"{moe.num_experts_per_tok} of {moe.num_experts}" if moe else ""
    growth = [worked[f"{key}_batch_s"] / worked[f"{key}_step_s"] for key in ("experts", "dense")]
    rate = seen["experts_rate"] / seen["dense_rate"]
    served = f"{rate:.1f} times as many requests" if rate >= 1 else f"only {rate:.1f} times the requests"
    return (
        f"A mixture pays for all its parameters in memory and for a few in work. {model.name} holds "
        f"{format_bytes(worked['experts_weights'])} and computes {format_count(worked['experts_flop'], 'FLOP')} a "
        f"prompt token ({chosen} experts a layer); {pair.dense.model.name} holds "
        f"{format_bytes(worked['dense_weights'])} and computes {format_count(worked['dense_flop'], 'FLOP')}.",
        f"Alone, a decode step reads the visited experts only: {format_duration(seen['experts_tpot'])} against "
        f"{format_duration(seen['dense_tpot'])} (simulated). But {BATCH} tokens visit "
        f"{worked[f'touched_{BATCH}']:.0f} experts a layer, so that the step grows {growth[0]:.1f} times, the dense "
        f"one {growth[1]:.1f} times. With {BATCH} requests at once the mixture serves {served} as the dense model.",
    )


def _picture(pair: Pair) -> Picture:
    series = []
    for each in pair:
        cost, window = ENVELOPE.start(each.deployment()), each.model.sliding_window
        steps = [1e3 * cost.step(decodes(batch, PROMPT, window)).occupancy_s for batch in BATCHES]
        series.append(Series(each.model.name, tuple(map(float, BATCHES)), tuple(steps)))
    return Picture(
        "A decode step over the batch",
        f"Closed form, {PROMPT:,} tokens of context: the mixture's step grows until every expert is read.",
        "sequences at once",
        "step (ms)",
        tuple(series),
        log_x=True,
        log_y=True,
    )
