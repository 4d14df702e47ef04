"""Lines of arithmetic that several questions show: the time of an iteration, and what one does."""

from typing import Any

from llmsim.closed_form import EnvelopeCost, Line, decodes, prompts, spent
from llmsim.cost import AnalyticCost, Batch
from llmsim.deployment import Deployment
from llmsim.questions.subject import Subject, users
from llmsim.units import format_duration, format_percent

ENVELOPE = EnvelopeCost()
"""MFU and MBU of all closed forms here."""


def time_line(key: str, label: str, deployment: Deployment, batch: Batch, envelope: EnvelopeCost = ENVELOPE) -> Line:
    """The time of an iteration by the back of the envelope, from whatever takes longest."""
    cost = envelope.start(deployment)
    value, work = cost.step(batch).occupancy_s, spent(cost, batch)
    terms: dict[str, float] = {"all_reduces": work.overhead_s}
    if work.compute_s:
        formula = "flop / (peak * mfu)"
        terms |= {"flop": work.flop, "peak": work.flop / work.compute_s / envelope.mfu, "mfu": envelope.mfu}
    elif work.hbm_s:
        formula = "bytes / (bandwidth * mbu)"
        bandwidth = deployment.accelerator.hbm_bandwidth_bytes_per_s
        terms |= {"bytes": work.hbm_bytes, "bandwidth": bandwidth, "mbu": envelope.mbu}
    else:
        formula = "sent / link"
        terms |= {"sent": work.link_bytes, "link": work.link_bytes / work.link_s}
    return Line(key, label, value, "s", formula + " + all_reduces" * bool(work.overhead_s), terms)


def decode_line(key: str, label: str, deployment: Deployment, sequences: int, context: int) -> Line:
    """The time of a decode step; its bytes as weights and keys and values where it is they that take the time."""
    window = deployment.model.sliding_window
    batch = decodes(sequences, context, window)
    line = time_line(key, label, deployment, batch)
    if "bytes" not in line.terms:
        return line
    cost = ENVELOPE.start(deployment)
    weights = spent(cost, batch._replace(decode_context_tokens=0, decode_window_tokens=0)).hbm_bytes
    kv = (line.terms["bytes"] - weights) / sequences / context
    terms = {**line.terms, "weights": weights, "sequences": sequences, "context": context, "kv_of_token": kv}
    return line._replace(
        formula=line.formula.replace("bytes", "(weights + sequences * context * kv_of_token)"), terms=terms
    )


def bound(deployment: Deployment, batch: Batch) -> str:
    """What takes longest in an iteration, by the back of the envelope: compute, memory or links."""
    work = spent(ENVELOPE.start(deployment), batch)
    times = {"compute": work.compute_s, "memory bandwidth": work.hbm_s, "links": work.link_s}
    return max(times, key=times.__getitem__)


def request_overhead(subject: Subject) -> str:
    """Time of a request outside the step loop, which the closed forms leave out."""
    return format_duration(subject.accelerator.efficiency.request_s)


def kernels_reach(deployment: Deployment, prompt_tokens: int) -> str:
    """Which share of peak FLOP/s a prefill reaches in the simulation."""
    cost, batch = AnalyticCost().start(deployment), prompts(1, prompt_tokens, window=deployment.model.sliding_window)
    share = spent(cost, batch).flop / deployment.peak_flop_per_s / cost.step(batch).occupancy_s
    kind = deployment.compute_dtype(deployment.weight_dtype)
    return f"prefill reaches {format_percent(share)} of the {kind} peak, not {format_percent(ENVELOPE.mfu)}"


def parts(deployment: Deployment, batch: Batch) -> str:
    """Which share of a simulated iteration goes where, the largest first."""
    work = spent(AnalyticCost().start(deployment), batch)
    names = ("compute", "HBM", "links", "launches and host")
    times = dict(zip(names, (work.compute_s, work.hbm_s, work.link_s, work.overhead_s), strict=True))
    largest = sorted(times, key=lambda name: -times[name])
    told = [f"{name} {format_percent(times[name] / sum(times.values()))}" for name in largest]
    return ", ".join(each for each, name in zip(told, largest, strict=True) if times[name] > 0.03 * sum(times.values()))


def mean(summary: dict[str, Any], metric: str) -> float:
    """The mean of a latency."""
    return float(summary[f"{metric}_s"]["mean"])


def full(subject: Subject, sequences: int, prompt_tokens: int, output_tokens: int, **given: Any) -> dict[str, Any]:
    """The figures of an engine that always has so many requests of these lengths; ``given`` as of ``Subject.run``."""
    return subject.summary(users(sequences, prompt_tokens, output_tokens), **given)
