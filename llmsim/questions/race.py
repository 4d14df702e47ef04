"""A long prompt with a short answer races the opposite, and a chat sends its history again with every turn."""

from typing import Any, NamedTuple

from llmsim.closed_form import Line, conversation, crossover_ratio, latency_s, prompts
from llmsim.cluster.router import RoundRobin, RouterSpec, SessionAffinity
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import decode_line, full, mean, request_overhead, time_line
from llmsim.units import format_duration
from llmsim.workload.lengths import Fixed

A, B = (960, 10), (16, 200)
"""Prompt and output tokens of the two requests."""
BATCH = 128
"""Requests in flight, for their cost."""
USER, ANSWER, TURNS = 50, 200, 20
SESSIONS = 6


class Chat(NamedTuple):
    """Conversations of ``TURNS`` turns, simulated."""

    last_ttft_s: float
    """Mean, of last turns."""
    computed_share: float
    """Of prompt tokens, those not found in a prefix cache."""


def answer(subject: Subject) -> Answer:
    """The answer for both requests alone, in a batch, and a chat of 20 turns."""
    turns = min(TURNS, 1 + (subject.longest - ANSWER - USER) // (USER + ANSWER))
    arithmetic = _arithmetic(subject, turns)
    worked = {line.key: line.value for line in arithmetic}
    contrasts = _contrasts(subject, turns, worked)
    return Answer(
        short=_short(worked, turns),
        arithmetic=arithmetic,
        contrasts=contrasts,
        pitfalls=(
            "Ask how many requests run at once: latency alone and cost in a batch rank A and B differently",
            "Total tokens decide nothing: a token in and a token out cost differently",
            "Prompt tokens of a chat grow with the square of its turns",
            "A prefix cache loses most of its worth when turns scatter over replicas",
            "Cached history holds KV memory, is evicted, and has a time to live at paid APIs",
        ),
        commands=(
            Command("llmsim ask 5 --accelerator m2-ultra", "On a machine with little compute for its bandwidth"),
            Command(
                f"llmsim explain {subject.flags} --prompt 960 --output 10 --only capacity", "What A costs when full"
            ),
            Command(
                f"llmsim explain {subject.flags} --prompt 16 --output 200 --only capacity", "What B costs when full"
            ),
        ),
        pictures=(_picture(),),
        notes=(
            f"In a batch: {BATCH} requests always in flight; chat: {SESSIONS} conversations of {turns} turns, "
            f"{USER} tokens in and {ANSWER} out each, on one replica and on two",
        ),
    )


def _arithmetic(subject: Subject, turns: int) -> tuple[Line, ...]:
    deployment, window = subject.deployment(), subject.model.sliding_window
    prefill = time_line("prefill_a_s", "prefill of A", deployment, prompts(1, A[0], window=window))
    first = time_line("prefill_b_s", "prefill of B", deployment, prompts(1, B[0], window=window))
    step = decode_line("step_s", "a decode step alone", deployment, 1, B[0] + B[1] // 2)
    full_step = decode_line("batch_step_s", f"a decode step of {BATCH}", deployment, BATCH, B[0] + B[1] // 2)
    rates = {"prompt": A[0], "prefill": prefill.value, "step": step.value}
    each_s, token_s = prefill.value / A[0], full_step.value / BATCH
    chat = conversation(turns, USER, ANSWER)
    sizes = {"turns": turns, "user": USER, "answer": ANSWER}
    last = time_line("last_turn_s", f"prefill of turn {turns}", deployment,
                     prompts(1, chat.last_prompt_tokens, window=window))  # fmt: skip
    cached = prompts(1, USER, chat.last_prompt_tokens - USER, window)
    return (
        prefill,
        first,
        step,
        _e2e_line("e2e_a_s", "E2E of A", prefill.value, A[1], step.value),
        _e2e_line("e2e_b_s", "E2E of B", first.value, B[1], step.value),
        Line("ratio", "prefill rate over decode rate", A[0] / prefill.value * step.value, "",
             "prompt / prefill * step", rates),
        Line("crossover", "above this ratio A is first", crossover_ratio(A, B), "", "(960 - 16) / (199 - 9)"),
        full_step,
        _cost_line("cost_a_s", f"GPU time of A, {BATCH} at once", A, each_s, token_s),
        _cost_line("cost_b_s", f"GPU time of B, {BATCH} at once", B, each_s, token_s),
        Line("resent_tokens", f"prompt tokens of a chat of {turns} turns", chat.prompt_tokens, "tokens",
             "turns * user + (user + answer) * turns * (turns - 1) / 2", sizes),
        Line("resent_factor", "for each token the user wrote", chat.factor, "", "resent / (turns * user)",
             {**sizes, "resent": chat.prompt_tokens}),
        last,
        time_line("cached_turn_s", "the same with its history cached", deployment, cached),
        Line("chat_prefill_s", "GPU time of its prompts", chat.prompt_tokens * each_s, "s", "resent * in_s",
             {"resent": chat.prompt_tokens, "in_s": each_s}),
        Line("chat_decode_s", f"of its answers, {BATCH} at once", chat.output_tokens * token_s, "s", "output * out_s",
             {"output": chat.output_tokens, "out_s": token_s}),
    )  # fmt: skip


def _e2e_line(key: str, label: str, ttft_s: float, output: int, step_s: float) -> Line:
    terms = {"ttft": ttft_s, "output": output, "step": step_s}
    return Line(key, label, latency_s(ttft_s, step_s, output), "s", "ttft + (output - 1) * step", terms)


def _cost_line(key: str, label: str, request: tuple[int, int], in_s: float, out_s: float) -> Line:
    terms = {"prompt": request[0], "in_s": in_s, "output": request[1], "out_s": out_s}
    return Line(key, label, request[0] * in_s + request[1] * out_s, "s", "prompt * in_s + output * out_s", terms)


def _contrasts(subject: Subject, turns: int, worked: dict[str, float]) -> tuple[Contrast, ...]:
    alone = {name: subject.alone(*request) for name, request in (("a", A), ("b", B))}
    costs = {
        name: 1 / full(subject, BATCH, *request)["request_throughput_per_s"] for name, request in (("a", A), ("b", B))
    }
    plain = _chat(subject, turns, enable_prefix_caching=False)
    cached = _chat(subject, turns)
    sticky = _chat(subject, turns, router=SessionAffinity(), replicas=2)
    scattered = _chat(subject, turns, router=RoundRobin(), replicas=2)
    again = turns * USER / worked["resent_tokens"]
    overhead = request_overhead(subject)
    return (
        Contrast("e2e_a", "E2E of A alone", "s", worked["e2e_a_s"], mean(alone["a"], "e2e"),
                 f"{overhead} outside the engine weigh on a short request"),
        Contrast("e2e_b", "E2E of B alone", "s", worked["e2e_b_s"], mean(alone["b"], "e2e"),
                 "199 steps with kernels as fitted, launches and host"),
        Contrast("cost_a", f"GPU time of A, {BATCH} at once", "s", worked["cost_a_s"], costs["a"],
                 "prefills fill iterations; fitted efficiencies"),
        Contrast("cost_b", f"GPU time of B, {BATCH} at once", "s", worked["cost_b_s"], costs["b"],
                 "the batch runs down at its end"),
        Contrast("last_ttft", f"TTFT of turn {turns}, no cache", "s", worked["last_turn_s"], plain.last_ttft_s,
                 f"{SESSIONS} chats at once, {overhead} outside"),
        Contrast("cached_ttft", "the same with a prefix cache", "s", worked["cached_turn_s"], cached.last_ttft_s,
                 f"{overhead} outside, and an iteration of others to wait for"),
        Contrast("computed", "share of prompts computed, cache", "share", again, cached.computed_share,
                 "whole blocks only: a few tokens of each turn more"),
        Contrast("sticky", "two replicas, sessions stay", "share", again, sticky.computed_share,
                 "as on one replica"),
        Contrast("scattered", "two replicas, round robin", "share", None, scattered.computed_share,
                 "a replica knows only the turns it has seen"),
    )  # fmt: skip


def _chat(subject: Subject, turns: int, router: RouterSpec | None = None, **given: Any) -> Chat:
    client = a_client(USER, ANSWER, rate_per_s=1.0, turns=Fixed(tokens=turns), think_s=1.0)
    requests = subject.run(client, requests=SESSIONS * turns, router=router, **given).record.requests
    last = requests["prompt_tokens"] == conversation(turns, USER, ANSWER).last_prompt_tokens
    ttft_s = (requests["first_token_s"] - requests["arrival_s"])[last]
    computed = 1 - requests["cached_tokens"].sum() / requests["prompt_tokens"].sum()
    return Chat(float(ttft_s.mean()), float(computed))


def _short(worked: dict[str, float], turns: int) -> tuple[str, ...]:
    first = "A" if worked["e2e_a_s"] < worked["e2e_b_s"] else "B"
    dearer = "A" if worked["cost_a_s"] > worked["cost_b_s"] else "B"
    times = max(worked["e2e_a_s"], worked["e2e_b_s"]) / min(worked["e2e_a_s"], worked["e2e_b_s"])
    twist = "finishes first, and yet costs more" if first == dearer else "finishes first, and costs less too"
    bill = "prompts" if worked["chat_prefill_s"] > worked["chat_decode_s"] else "answers"
    return (
        f"{first}, {times:.1f} times as fast alone ({format_duration(worked['e2e_a_s'])} against "
        f"{format_duration(worked['e2e_b_s'])}): prompt tokens are computed together, output tokens one after "
        f"another. A is first wherever prefill is more than {worked['crossover']:.2f} times as fast as decode, token "
        f"for token; here it is {worked['ratio']:,.0f} times. With {BATCH} requests at once output tokens share the "
        f"reading of weights: A then takes {format_duration(worked['cost_a_s'])} of GPU time and B "
        f"{format_duration(worked['cost_b_s'])}, so {first} {twist}.",
        f"A chat of {turns} turns that sends its history with each computes {worked['resent_tokens']:,.0f} prompt "
        f"tokens, {worked['resent_factor']:.0f} for each one the user wrote, growing with the square of the turns. It "
        f"feels bound by decode, but most of its GPU time goes to {bill} ({format_duration(worked['chat_prefill_s'])} "
        f"against {format_duration(worked['chat_decode_s'])}). A prefix cache takes the history away if the next turn "
        "finds the replica that has it.",
    )


def _picture() -> Picture:
    ratios = [2 ** (k / 4) for k in range(41)]
    decode_per_s = 10.0
    times = [[latency_s(p / (ratio * decode_per_s), 1 / decode_per_s, o) for ratio in ratios] for p, o in (A, B)]
    return Picture(
        "Which finishes first",
        f"Alone, at {decode_per_s:.0f} output tokens a second, over the ratio of prefill to decode rate: a laptop has "
        "3 to 10, a GPU some hundreds.",
        "prefill rate over decode rate",
        "E2E (s)",
        (
            Series("A: 960 in, 10 out", tuple(ratios), tuple(times[0])),
            Series("B: 16 in, 200 out", tuple(ratios), tuple(times[1])),
        ),
        log_x=True,
        log_y=True,
        marks=((crossover_ratio(A, B), f"{crossover_ratio(A, B):.2f}"),),
    )
