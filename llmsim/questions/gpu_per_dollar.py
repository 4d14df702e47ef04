"""Which GPU gives the most tokens per dollar: the cost of a million tokens within a TPOT limit."""

from typing import NamedTuple

from llmsim import catalog
from llmsim.closed_form import EnvelopeCost, Line
from llmsim.engine.vllm import VllmScheduler
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator
from llmsim.questions.answer import Answer, Command, Contrast, Picture, Series
from llmsim.questions.subject import Subject, subject_of
from llmsim.questions.worked import full
from llmsim.study.candidates import bound_within_slo
from llmsim.study.load import Shape
from llmsim.units import format_duration, format_usd

SHAPE, TPOT_S, SIMULATED, MOST = Shape(1000, 250), 0.05, 3, 256
"""Tokens of a request, the limit, how many of the cheapest are simulated, sequences at once at most."""


class Offer(NamedTuple):
    """A GPU that holds the model, and its closed form."""

    subject: Subject
    batch: int
    rate_per_s: float
    prompt_s: float
    step_s: float
    usd_per_million_tokens: float

    @property
    def usd_per_hour(self) -> float:
        """Of an engine."""
        return (self.subject.accelerator.price_usd_per_hour or 0.0) * self.subject.gpus

    @property
    def name(self) -> str:
        """The GPUs of an engine."""
        gpus = self.subject.gpus
        return f"{gpus} x {self.subject.accelerator.name}" if gpus > 1 else self.subject.accelerator.name


def answer(subject: Subject) -> Answer:
    """The answer for 1,000 tokens in, 250 out, TPOT within 50 ms."""
    offers, left_out = _offers(subject)
    if not offers:
        raise ScenarioError(f"{subject.model.name}: no priced GPU of the catalogue keeps a TPOT of {TPOT_S:g} s")
    arithmetic = tuple(_line(each) for each in offers)
    contrasts = tuple(_contrast(each) for each in offers[:SIMULATED])
    return Answer(
        short=_short(subject, offers, contrasts),
        arithmetic=arithmetic,
        contrasts=contrasts,
        pitfalls=(
            "Prices differ by provider, term and region by a factor of three: put in your own",
            "Price per token says nothing about latency: state the limit on TPOT first",
            "Cost at full load is the least there is; multiply by utilisation and headroom",
            "Small GPUs need tensor parallelism for large models, over slower links",
            "A model that just fits leaves no memory for a batch",
        ),
        commands=(
            Command(
                "llmsim plan scenarios/chat_h100.toml --rate 50 --accelerators h100-sxm,l40s,a100-sxm-80gb "
                "--searched 2 --set workload.requests=300",
                "A search with measured capacity",
            ),
            Command("llmsim catalog accelerators", "Prices and data sheets"),
            Command(f"llmsim explain {offers[0].subject.flags} --only capacity", "The cheapest, line by line"),
        ),
        pictures=(_picture(offers),),
        notes=(
            f"{SHAPE.prompt_tokens:,} tokens in, {SHAPE.output_tokens} out, at most {MOST} at once, full load; list "
            "prices of the catalogue; GPUs with a price and efficiencies of their own, and the one asked for",
            *([f"Left out: {left_out}"] if left_out else []),
        ),
    )


def _offers(subject: Subject) -> tuple[list[Offer], str]:
    """What holds the model and keeps the limit, cheapest first; and the names of what does not."""
    names = [name for name in catalog.names("accelerators") if _priced(name)]
    if subject.accelerator.price_usd_per_hour is not None and subject.names[1] not in names:
        names.append(subject.names[1])
    found, left_out = [], []
    for name in names:
        try:
            found.append(_offer(subject_of(subject.names[0], name)))
        except ScenarioError:
            left_out.append(f"{name} (does not hold it)")
    late = [each for each in found if each.step_s > TPOT_S]
    left_out += [f"{each.name} (a step alone takes {format_duration(each.step_s)})" for each in late]
    kept = [each for each in found if each.step_s <= TPOT_S]
    return sorted(kept, key=lambda each: each.usd_per_million_tokens), ", ".join(left_out)


def _priced(name: str) -> bool:
    chip = load_accelerator(name)
    return chip.price_usd_per_hour is not None and chip.efficiency.borrowed_from is None


def _offer(subject: Subject) -> Offer:
    pool = subject.pool(cost=EnvelopeCost(), scheduler=VllmScheduler(max_num_seqs=MOST))
    found, rate = bound_within_slo(pool, SHAPE, {"tpot_p99_s": TPOT_S})
    batch = round((SHAPE.output_tokens - 1) * found.decode_step_s / (found.request_s - found.prompt_s))
    price = (subject.accelerator.price_usd_per_hour or 0.0) * subject.gpus
    million = price / 3600 / rate / sum(SHAPE) * 1e6
    return Offer(subject, batch, rate, found.prompt_s, found.decode_step_s, million)


def _line(offer: Offer) -> Line:
    terms = {
        "price": offer.usd_per_hour,
        "prompt": offer.prompt_s,
        "step": offer.step_s,
        "batch": offer.batch,
        "output": SHAPE.output_tokens,
        "tokens": sum(SHAPE),
    }
    return Line(offer.name, f"a million tokens, {offer.name}", offer.usd_per_million_tokens, "USD",
                "price / 3600 * (prompt + (output - 1) * step / batch) / tokens * 1e6", terms)  # fmt: skip


def _contrast(offer: Offer) -> Contrast:
    run = full(offer.subject, offer.batch, *SHAPE)
    million = offer.usd_per_hour / 3600 / run["request_throughput_per_s"] / sum(SHAPE) * 1e6
    tpot = format_duration(run["tpot_s"]["mean"])
    why = f"{offer.batch} at once; {format_usd(offer.usd_per_hour)} an hour; TPOT {tpot}"
    return Contrast(offer.name, f"a million tokens, {offer.name}", "USD", offer.usd_per_million_tokens, million, why)


def _short(subject: Subject, offers: list[Offer], contrasts: tuple[Contrast, ...]) -> tuple[str, ...]:
    best, asked = offers[0], next((each for each in offers if each.subject.accelerator == subject.accelerator), None)
    simulated = min(contrasts, key=lambda each: each.simulated or 0.0)
    agrees = "too" if simulated.key == best.name else "instead"
    told = ""
    if asked is not None and asked is not best:
        factor = asked.usd_per_million_tokens / best.usd_per_million_tokens
        told = f" {asked.name}, which you asked about, takes {factor:.2f} times that."
    bound = "FLOPs" if best.prompt_s * best.rate_per_s > 0.5 else "bandwidth"
    return (
        "The one whose FLOP/s and bandwidth per dollar fit your mix, among those that hold the model and keep TPOT. "
        f"For {SHAPE.prompt_tokens:,} tokens in and {SHAPE.output_tokens} out with TPOT within "
        f"{format_duration(TPOT_S)} that is {best.name} by closed form, {format_usd(best.usd_per_million_tokens)} a "
        f"million tokens; most of it pays for {bound}.{told}",
        f"Of the {len(contrasts)} cheapest simulated, {simulated.key} is the cheapest {agrees}: "
        f"{format_usd(simulated.simulated or 0.0)}.",
    )


def _picture(offers: list[Offer]) -> Picture:
    names = tuple(each.name for each in offers)
    return Picture(
        "Cost of a million tokens",
        "Closed form at full load, prompt and output tokens together.",
        "engine",
        "USD a million tokens",
        (Series("closed form", names, tuple(each.usd_per_million_tokens for each in offers), "bars"),),
    )
