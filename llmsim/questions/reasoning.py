"""What changes when the model reasons before it answers: time to the answer, memory, cost."""

from typing import Any

from llmsim.closed_form import Line, latency_s, prompts, saturated
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject
from llmsim.questions.worked import decode_line, full, mean, request_overhead, time_line
from llmsim.units import format_duration, format_percent

PROMPT, ANSWER, HIDDEN, BATCH = 1000, 300, 3000, 32


def answer(subject: Subject) -> Answer:
    """The answer for 3,000 hidden tokens before 300 of answer."""
    hidden = min(HIDDEN, subject.longest - PROMPT - ANSWER)
    arithmetic = _arithmetic(subject, hidden)
    worked = {line.key: line.value for line in arithmetic}
    runs = {tokens: full(subject, BATCH, PROMPT, ANSWER + tokens) for tokens in (0, hidden)}
    alone = subject.alone(PROMPT, ANSWER + hidden)
    return Answer(
        short=_short(subject, worked, runs, hidden),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, worked, runs, alone, hidden),
        pitfalls=(
            "TTFT of a reasoning model says nothing: the reader waits for the first token of the answer",
            "Lengths of reasoning have a long tail; plan with p99, and cap max_tokens",
            "Faster decode helps, faster prefill hardly: tensor parallelism, quantization, speculative decoding",
            "A thinking request holds its KV memory all the time: fewer run at once, preemptions come sooner",
            "History usually drops the hidden tokens, so the next turn's prefix ends before them",
        ),
        commands=(
            Command(
                f"llmsim explain {subject.flags} --only decode --batch {BATCH} --prompt {PROMPT} --output {2 * hidden}",
                "A decode step in the middle of reasoning",
            ),
            Command(
                f"llmsim explain {subject.flags} --only capacity --prompt {PROMPT} --output {hidden + ANSWER}",
                "Capacity with such outputs",
            ),
            Command("llmsim catalog workloads reasoning", "Measured lengths of a reasoning workload"),
        ),
        pictures=(_picture(subject),),
        notes=(f"{PROMPT:,} tokens in, {hidden:,} hidden and {ANSWER} of answer; {BATCH} requests always in flight",),
    )


def _arithmetic(subject: Subject, hidden: int) -> tuple[Line, ...]:
    deployment, cost, window = subject.deployment(), subject.envelope(), subject.model.sliding_window
    prefill = time_line("ttft_s", f"prefill of {PROMPT:,}", deployment, prompts(1, PROMPT, window=window))
    step = decode_line("step_s", f"a decode step of {BATCH}", deployment, BATCH, PROMPT + hidden // 2)
    lines = [
        prefill,
        step,
        Line("answer_s", "first token of the answer", prefill.value + hidden * step.value, "s",
             "prefill + hidden * step", {"prefill": prefill.value, "hidden": hidden, "step": step.value}),
    ]  # fmt: skip
    pool = deployment.ledger().kv_tokens
    for key, label, output in (("plain", "without reasoning", ANSWER), ("thinking", "with reasoning", ANSWER + hidden)):
        found = saturated(cost, deployment, PROMPT, output, BATCH)
        mean_tokens = PROMPT + output / 2
        terms = {"prompt": found.prompt_s, "output": output, "step": found.decode_step_s, "batch": BATCH}
        lines += [
            Line(f"{key}_request_s", f"engine time of a request {label}", found.request_s, "s",
                 "prompt + (output - 1) * step / batch", terms),
            Line(f"{key}_held", f"requests in the KV pool {label}", pool / mean_tokens, "",
                 "pool / (prompt + output / 2)",
                 {"pool": pool, "prompt": PROMPT, "output": output}),
        ]  # fmt: skip
    times = {each.key: each.value for each in lines}
    lines.append(
        Line("factor", "times the engine time", times["thinking_request_s"] / times["plain_request_s"], "",
             "thinking / plain", {"thinking": times["thinking_request_s"], "plain": times["plain_request_s"]})
    )  # fmt: skip
    return tuple(lines)


def _contrasts(
    subject: Subject, worked: dict[str, float], runs: dict[int, dict[str, Any]], alone: dict[str, Any], hidden: int
) -> tuple[Contrast, ...]:
    rate = {tokens: run["request_throughput_per_s"] for tokens, run in runs.items()}
    waited = runs[hidden]["ttft_s"]["mean"] + hidden * runs[hidden]["tpot_s"]["mean"]
    step_s = decode_line("step_s", "", subject.deployment(), 1, PROMPT + hidden // 2).value
    return (
        Contrast("alone", "first answer token, alone", "s", worked["ttft_s"] + hidden * step_s,
                 mean(alone, "ttft") + hidden * mean(alone, "tpot"), "almost all of it decode: kernels as fitted"),
        Contrast("answer", f"the same, {BATCH} at once", "s", worked["answer_s"], waited,
                 f"TTFT among others and {request_overhead(subject)} outside; a larger batch steps slower"),
        Contrast("plain", "requests/s without reasoning", "1/s", 1 / worked["plain_request_s"], rate[0],
                 "kernels as fitted; a short run with start and end"),
        Contrast("thinking", "requests/s with reasoning", "1/s", 1 / worked["thinking_request_s"], rate[hidden],
                 "the same"),
        Contrast("factor", "times the engine time", "", worked["factor"], rate[0] / rate[hidden],
                 "follows from the two"),
    )  # fmt: skip


def _short(subject: Subject, worked: dict[str, float], runs: dict[int, dict[str, Any]], hidden: int) -> tuple[str, ...]:
    factor = runs[0]["request_throughput_per_s"] / runs[hidden]["request_throughput_per_s"]
    tokens = (hidden + ANSWER) / ANSWER
    fewer = "less, because prompts cost the same" if factor < tokens else "more, because the context grows too"
    return (
        "Everything moves to decode. The first token that anyone reads comes after TTFT and all hidden tokens: "
        f"{format_duration(worked['answer_s'])} for {hidden:,} of them, of which prefill is "
        f"{format_percent(worked['ttft_s'] / worked['answer_s'])}. A request takes {worked['factor']:.1f} times the "
        f"engine time by closed form and {factor:.1f} times simulated; its output tokens grew {tokens:.0f} times. "
        f"That is {fewer}.",
        f"It holds its KV cache all that time and grows: {worked['thinking_held']:,.0f} requests fit at once instead "
        f"of {worked['plain_held']:,.0f}. So buy bandwidth and KV memory, not FLOP/s; set a limit on time to the "
        "answer, not on TTFT; cap the budget of hidden tokens.",
    )


def _picture(subject: Subject) -> Picture:
    deployment, window = subject.deployment(), subject.model.sliding_window
    ttft = subject.envelope().step(prompts(1, PROMPT, window=window)).latency_s
    lengths = [
        tokens for tokens in (0, 500, 1000, 2000, 4000, 8000, 16_000) if tokens + PROMPT + ANSWER < subject.longest
    ]
    series = []
    for batch in (1, 32, 128):
        times = [
            latency_s(ttft, decode_line("step", "", deployment, batch, PROMPT + tokens // 2).value, tokens + 1)
            for tokens in lengths
        ]
        series.append(Series(f"{batch} at once", tuple(map(float, lengths)), tuple(times)))
    return Picture(
        "Time to the answer",
        "Closed form, by hidden tokens and batch.",
        "hidden tokens",
        "first answer token (s)",
        tuple(series),
    )
