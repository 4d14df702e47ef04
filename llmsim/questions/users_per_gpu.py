"""How many users one GPU serves: throughput within an SLO, and Little's law over users who think."""

from typing import Any

from llmsim.closed_form import EnvelopeCost, Line, interactive_users, latency_s
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.study.candidates import bound_within_slo
from llmsim.study.load import Shape
from llmsim.units import format_duration, format_percent

PROMPT, OUTPUT, THINK_S = 1000, 250, 60.0
TTFT_S, TPOT_S, REQUESTS = 1.0, 0.05, 400
SHARES = (0.5, 0.7, 0.85, 1.0)
"""Of the closed form's rate, simulated."""


def answer(subject: Subject) -> Answer:
    """The answer for chats of 1,000 tokens in, 250 out, a minute of reading and typing between."""
    arithmetic = _arithmetic(subject)
    worked = {line.key: line.value for line in arithmetic}
    runs = {share: _at(subject, share * worked["rate"]) for share in SHARES}
    return Answer(
        short=_short(subject, worked, runs),
        arithmetic=arithmetic,
        contrasts=_contrasts(worked, runs),
        pitfalls=(
            "Users are not requests in flight: most are reading or typing",
            "A seat, a daily user and a user at the busiest minute are three numbers, tens of times apart",
            "Without an SLO on TPOT any number of users fits; say the limit first",
            "Long chats carry their history: prompt tokens grow from turn to turn",
            "The closed form has no queue: leave room below it",
        ),
        commands=(
            Command("llmsim capacity scenarios/chat_h100.toml --replications 2", "The highest rate that keeps an SLO"),
            Command(
                f"llmsim explain {subject.flags} --only capacity --prompt {PROMPT} --output {OUTPUT}",
                "The same arithmetic with the full cost model",
            ),
            Command("llmsim ask 19", "How much room to leave"),
        ),
        pictures=(_picture(worked, runs),),
        notes=(
            f"{PROMPT:,} tokens in, {OUTPUT} out, {THINK_S:.0f} s of thinking on average (exponential), TPOT limit "
            f"{format_duration(TPOT_S)}; simulated with {REQUESTS} Poisson arrivals a load",
        ),
    )


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    pool = subject.pool(cost=EnvelopeCost())
    found, rate = bound_within_slo(pool, Shape(PROMPT, OUTPUT), {"tpot_p99_s": TPOT_S})
    batch = round((OUTPUT - 1) * found.decode_step_s / (found.request_s - found.prompt_s))
    response = latency_s(found.prompt_s, found.tpot_s, OUTPUT)
    users = interactive_users(rate, response, THINK_S)
    return (
        Line("batch", f"sequences at once within {format_duration(TPOT_S)} of TPOT", batch),
        Line("prompt_s", "GPU time of a prompt", found.prompt_s, "s"),
        Line("step_s", "a decode step of that batch", found.decode_step_s, "s"),
        Line("rate", "requests a second", rate, "1/s", "1 / (prompt + (output - 1) * step / batch)",
             {"prompt": found.prompt_s, "output": OUTPUT, "step": found.decode_step_s, "batch": batch}),
        Line("tpot_s", "TPOT with prompts of others between", found.tpot_s, "s", "step / (1 - prompt * rate)",
             {"step": found.decode_step_s, "prompt": found.prompt_s, "rate": rate}),
        Line("response_s", "an answer takes", response, "s", "prompt + (output - 1) * tpot",
             {"prompt": found.prompt_s, "output": OUTPUT, "tpot": found.tpot_s}),
        Line("users", "users of an engine", users, "", "rate * (response + think)",
             {"rate": rate, "response": response, "think": THINK_S}),
        Line("users_per_gpu", "users of a GPU", users / subject.gpus, "", "users / gpus",
             {"users": users, "gpus": subject.gpus}),
    )  # fmt: skip


def _at(subject: Subject, rate_per_s: float) -> dict[str, Any]:
    """Many users who think look like Poisson arrivals."""
    return subject.summary(a_client(PROMPT, OUTPUT, rate_per_s=rate_per_s), requests=REQUESTS)


def _contrasts(worked: dict[str, float], runs: dict[float, dict[str, Any]]) -> tuple[Contrast, ...]:
    found = []
    for share, run in runs.items():
        rate = share * worked["rate"]
        users = interactive_users(rate, run["e2e_s"]["mean"], THINK_S)
        by_hand = interactive_users(rate, worked["response_s"], THINK_S)
        found.append(
            Contrast(f"users_{share}", f"users at {format_percent(share)} of the rate", "", by_hand, users,
                     f"an answer takes {format_duration(run['e2e_s']['mean'])} at this load")
        )  # fmt: skip
    for share, run in runs.items():
        p99 = run["tpot_s"]["p99"]
        verdict = "kept" if p99 <= TPOT_S else "missed"
        found.append(
            Contrast(f"tpot_{share}", f"TPOT p99 at {format_percent(share)}", "s", None, p99,
                     f"{verdict}; TTFT p99 {format_duration(run['ttft_s']['p99'])}, {run['running']['mean']:.0f} run")
        )  # fmt: skip
    return tuple(found)


def _short(subject: Subject, worked: dict[str, float], runs: dict[float, dict[str, Any]]) -> tuple[str, ...]:
    kept = [share for share, run in runs.items() if run["tpot_s"]["p99"] <= TPOT_S and run["ttft_s"]["p99"] <= TTFT_S]
    simulated = "Simulated, none of the loads tried keeps the SLO."
    if kept:
        best = max(kept)
        users = interactive_users(best * worked["rate"], runs[best]["e2e_s"]["mean"], THINK_S) / subject.gpus
        simulated = (
            f"Simulated, {format_percent(best)} of that rate keeps TPOT p99 under {format_duration(TPOT_S)} and TTFT "
            f"p99 under {format_duration(TTFT_S)}: {users:,.0f} users a GPU."
        )
    per_user = THINK_S + worked["response_s"]
    return (
        f"Three steps. How many sequences decode at once within the limit on TPOT: {worked['batch']:.0f}. What that "
        f"serves: {worked['rate']:.3g} requests a second, prompts included. How often a user asks: every "
        f"{per_user:.0f} s, of which {format_duration(worked['response_s'])} is the answer. By Little's law "
        f"{worked['users_per_gpu']:,.0f} users a GPU, of whom only {worked['batch'] / subject.gpus:.0f} are being "
        f"answered at any moment. {simulated}",
    )


def _picture(worked: dict[str, float], runs: dict[float, dict[str, Any]]) -> Picture:
    rates = tuple(share * worked["rate"] for share in runs)
    return Picture(
        "Latency over load",
        "Simulated, up to the rate of the closed form.",
        "requests a second",
        "time (ms)",
        (
            Series("TPOT p99", rates, tuple(1e3 * run["tpot_s"]["p99"] for run in runs.values())),
            Series("TTFT p99", rates, tuple(1e3 * run["ttft_s"]["p99"] for run in runs.values())),
        ),
        log_y=True,
    )
