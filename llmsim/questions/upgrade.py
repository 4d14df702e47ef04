"""An upgrade looks 5 % faster in one run before and one after: luck, pairs, Amdahl, and what a queue makes of it."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from llmsim.closed_form import Line, latency_s, mean_wait_s, prompts
from llmsim.cost import Account, AnalyticCost, Batch, CostModel, Step
from llmsim.cost.base import Floats
from llmsim.deployment import Deployment
from llmsim.engine.vllm import VllmScheduler
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, a_client
from llmsim.questions.worked import decode_line, mean, time_line
from llmsim.results.statistics import chance_of_luck, paired_power, pairs_needed, percentile_ranks
from llmsim.units import format_duration, format_percent
from llmsim.workload.random_streams import stream

PROMPT, FASTER, RUN_CV = 960, 0.05, 0.03
LOAD, REQUESTS, DRAWS = 0.9, 4000, 20_000
OUTPUTS = (10, 200)


def answer(subject: Subject) -> Answer:
    """The answer for runs that vary by 3 %."""
    arithmetic = _arithmetic(subject)
    worked = {line.key: line.value for line in arithmetic}
    return Answer(
        short=_short(worked),
        arithmetic=arithmetic,
        contrasts=_contrasts(subject, worked),
        pitfalls=(
            "Compare A with A first: that is the noise; interleave pairs (ABBA), discard warm-up, fix clocks and "
            "versions",
            "Report the ratio with its interval, and the cost of being wrong, not a p-value alone",
            "Look at p50 and p99 of TTFT and TPOT, throughput within the SLO, memory, errors, and equality of outputs",
            "960 tokens may fit a tile of the new kernel: try other lengths and batches",
            "A p99 of a thousand requests rests on ten of them",
            "Free and neutral elsewhere may ship behind a canary with a way back, if that is argued",
        ),
        commands=(
            Command(
                "llmsim compare scenarios/chat_h100.toml scenarios/chat_h100.toml --noise 0.03 --pairs 6 "
                "--set workload.requests=200 --false-alarms",
                "A against A: how often noise alone looks like a change",
            ),
            Command(
                f"llmsim explain {subject.flags} --prompt {PROMPT} --output 200 --only prefill",
                "What prefill is made of",
            ),
        ),
        pictures=(_picture(),),
        notes=(
            f"The queue: {REQUESTS:,} Poisson arrivals of prompts of {PROMPT} tokens, one after another on the engine, "
            f"at {format_percent(LOAD)} of what it serves; the same arrivals for both",
        ),
    )


def _arithmetic(subject: Subject) -> tuple[Line, ...]:
    deployment = subject.deployment()
    prefill = time_line("prefill_s", f"prefill of {PROMPT}", deployment, prompts(1, PROMPT))
    step = decode_line("step_s", "a decode step", deployment, 1, PROMPT)
    deviation = 2**0.5 * RUN_CV
    wait = mean_wait_s(prefill.value, LOAD)
    after = mean_wait_s((1 - FASTER) * prefill.value, (1 - FASTER) * LOAD)
    low, _ = percentile_ranks(1000, 99)
    lines = [
        Line("deviation", "SD of one run against one, each varying 3 %", deviation, "share", "2**0.5 * run_cv",
             {"run_cv": RUN_CV}),
        Line("luck", "chance to see 5 % with no change at all", chance_of_luck(FASTER, RUN_CV), "share"),
        Line("pairs", "pairs that see 5 %, 80 of 100 times", pairs_needed(FASTER, deviation)),
        Line("pairs_for_2", "pairs that see 2 %", pairs_needed(0.02, deviation)),
        Line("rank_spread", "ranks about the 990th for a p99 of 1,000", 990 - low, "", "1.96 * (n * 0.99 * 0.01)**0.5",
             {"n": 1000}),
        prefill,
        step,
    ]  # fmt: skip
    for output in OUTPUTS:
        e2e = latency_s(prefill.value, step.value, output)
        terms = {"prefill": prefill.value, "e2e": e2e}
        share = prefill.value / e2e
        lines.append(
            Line(f"share_{output}", f"prefill's part of E2E, {output} out", share, "share", "prefill / e2e", terms)
        )
    shown = {"load": LOAD, "faster": FASTER, "prefill": prefill.value}
    lines += [
        Line("wait_s", "wait in a queue of prompts, load 0.9", wait, "s", "load / (1 - load) / 2 * prefill", shown),
        Line("wait_after_s", "the same, prefill 5 % faster", after, "s",
             "(1 - faster) * load / (1 - (1 - faster) * load) / 2 * (1 - faster) * prefill", shown),
        Line("wait_fall", "the wait falls by", 1 - after / wait, "share", "1 - after / before",
             {"after": after, "before": wait}),
    ]  # fmt: skip
    return tuple(lines)


def _contrasts(subject: Subject, worked: dict[str, float]) -> tuple[Contrast, ...]:
    rng, deviation = stream(0, "questions/upgrade"), worked["deviation"]
    seen = float(np.mean(rng.normal(0.0, deviation, DRAWS) >= FASTER))
    pairs = int(worked["pairs"])
    changes = rng.normal(FASTER, deviation, (DRAWS // 4, pairs))
    t = changes.mean(axis=1) / (changes.std(axis=1, ddof=1) / pairs**0.5)
    power, critical = paired_power(FASTER, deviation, pairs), _critical(pairs)
    before = _waits(subject, 0.0)
    after = _waits(subject, FASTER, LOAD / before.service_s)
    by_law = mean_wait_s(before.service_s, LOAD)
    e2e = {output: _e2e_gain(subject, output) for output in OUTPUTS}
    return (
        Contrast("luck", "one pair shows 5 % by luck", "share", worked["luck"], seen, f"{DRAWS:,} pairs drawn"),
        Contrast("power", f"{pairs} pairs see a real 5 %", "share", power, float(np.mean(t > critical)),
                 f"{DRAWS // 4:,} paired t tests drawn"),
        *(
            Contrast(f"e2e_{output}", f"E2E gained, {output} out", "share", FASTER * worked[f"share_{output}"],
                     e2e[output],
                     "E2E also holds the time outside the engine, and decode as fitted")
            for output in OUTPUTS
        ),
        Contrast("wait", "wait at load 0.9", "s", by_law, before.wait_s,
                 f"M/D/1 with the simulated {format_duration(before.service_s)} a prompt; {REQUESTS:,} arrivals are "
                 "few "
                 "at this load"),
        Contrast("wait_fall", "the wait falls by", "share", worked["wait_fall"], 1 - after.wait_s / before.wait_s,
                 "the same arrivals, so that their luck cancels"),
    )  # fmt: skip


def _critical(pairs: int) -> float:
    """Above it a paired t statistic is called a change."""
    from scipy.special import stdtrit

    return float(stdtrit(pairs - 1, 0.975))


@dataclass(frozen=True, slots=True)
class FasterPrefill:
    """The analytic cost with every iteration that computes prompts shorter by a share."""

    gain: float

    def start(self, deployment: Deployment) -> CostModel:
        """The cost model of a deployment."""
        return _Faster(AnalyticCost().start(deployment), 1 - self.gain)


class _Faster:
    """``FasterPrefill`` on a deployment; see ``CostModel``."""

    __slots__ = ("_cost", "_factor", "request_s")

    def __init__(self, cost: CostModel, factor: float) -> None:
        self._cost, self._factor, self.request_s = cost, factor, cost.request_s

    def step(self, batch: Batch) -> Step:
        """The time of one iteration."""
        factor = self._factor if batch.prefill_tokens else 1.0
        return Step(*(factor * each for each in self._cost.step(batch)))

    def account(self, batches: Batch) -> Account:
        """What iterations did."""
        factor = np.where(batches.prefill_tokens > 0, self._factor, 1.0)
        work = self._cost.account(batches)
        return Account(*work[:3], *(factor * times for times in work[3:]))


class Queued(NamedTuple):
    """Prompts that wait for one engine."""

    service_s: float
    """Each, when there is always a next."""
    wait_s: float
    """Mean, from arrival to the engine."""


def _waits(subject: Subject, gain: float, rate_per_s: float | None = None) -> Queued:
    """Prompts one after another; by default at ``LOAD`` of what is served."""
    engine: dict[str, Any] = {"scheduler": VllmScheduler(max_num_seqs=1), "cost": FasterPrefill(gain)}
    backlog = subject.summary(a_client(PROMPT, 1, users=40, requests_per_user=1), **engine)
    service_s = 1 / backlog["request_throughput_per_s"]
    arriving = a_client(PROMPT, 1, rate_per_s=rate_per_s or LOAD / service_s)
    summary = subject.summary(arriving, requests=REQUESTS, **engine)
    return Queued(service_s, summary["queue_s"]["mean"] - subject.accelerator.efficiency.request_s)


def _e2e_gain(subject: Subject, output: int) -> float:
    """Share of E2E that a faster prefill saves a request alone."""
    before, after = (mean(subject.alone(PROMPT, output, cost=FasterPrefill(gain)), "e2e") for gain in (0.0, FASTER))
    return 1 - after / before


def _short(worked: dict[str, float]) -> tuple[str, ...]:
    return (
        f"Not on that evidence. If runs vary by {format_percent(RUN_CV)}, one run against one differs with a standard "
        f"deviation of {format_percent(worked['deviation'])}: {format_percent(worked['luck'])} of such pairs show 5 % "
        f"with no change at all. {worked['pairs']:.0f} interleaved pairs see a real 5 % in four of five cases, "
        f"{worked['pairs_for_2']:.0f} a real 2 %. Fix versions and clocks, warm up, compare A with A, then pairs; "
        "report the ratio with its interval.",
        f"And what is it worth? Prefill of {PROMPT} tokens is {format_percent(worked['share_10'])} of a request with "
        f"10 tokens of answer and {format_percent(worked['share_200'])} of one with 200, so 5 % of it is "
        f"{format_percent(FASTER * worked['share_200'])} of the latter. Where prompts queue it is amplified: at load "
        f"0.9 the wait falls by {format_percent(worked['wait_fall'])}. So state it as requests a second within the "
        "SLO, and check other lengths, p99, memory and outputs before shipping behind a canary.",
    )


def _picture() -> Picture:
    gains = np.linspace(-0.1, 0.15, 101)
    deviation = 2**0.5 * RUN_CV
    counts = (1, 3, 6, 16)
    series = tuple(
        Series(f"{count} pair{'s' * (count > 1)}", tuple(100 * gains),
               tuple(_density(gains, deviation / count**0.5)))
        for count in counts
    )  # fmt: skip
    return Picture(
        "What no change at all looks like",
        "The density of the gain that is measured when nothing changed, with runs that vary by 3 %. Right of the "
        "dashed line one would read 5 % or more.",
        "gain measured (%)",
        "density",
        series,
        marks=((100 * FASTER, "5 %"),),
    )


def _density(values: Floats, deviation: float) -> Floats:
    """The normal density about 0."""
    density: Floats = np.exp(-0.5 * (values / deviation) ** 2) / (deviation * (2 * np.pi) ** 0.5)
    return density
