"""The question and its answer: which sections, of which deployment and batch."""

from collections.abc import Collection
from typing import Any, Literal, NamedTuple, Self, get_args

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from llmsim.closed_form import EnvelopeCost
from llmsim.cost import AnalyticCost
from llmsim.deployment import Deployment
from llmsim.report.explain.capacity import capacity_section
from llmsim.report.explain.lines import Section
from llmsim.report.explain.memory import memory_section
from llmsim.report.explain.phases import Priced, decode_section, prefill_section
from llmsim.specification import specification
from llmsim.validation.stated import stated_sentence

SectionName = Literal["memory", "prefill", "decode", "capacity"]
SECTIONS: tuple[SectionName, ...] = get_args(SectionName)


@specification
class Question:
    """What is asked of a deployment."""

    prompt_tokens: PositiveInt = 1000
    output_tokens: PositiveInt = 250
    batch: PositiveInt | None = None
    """Sequences that decode at once; None: one in the decode section, as many as there is room for in capacity."""
    rate_per_s: PositiveFloat | None = None
    """Requests a second to count GPUs for."""
    num_speculative_tokens: NonNegativeInt = 0
    """Drafted tokens of each sequence that a decode step verifies."""
    ideal: bool = False
    """Answer from the back of the envelope instead of the full model."""
    envelope: EnvelopeCost = EnvelopeCost()

    @model_validator(mode="after")
    def _can_be_answered(self) -> Self:
        if self.ideal and self.num_speculative_tokens:
            raise ValueError("num_speculative_tokens: the back of the envelope (ideal) does not price verification")
        return self


class Explanation(NamedTuple):
    """The answer: sections of lines, tables and notes."""

    subject: str
    assumptions: list[str]
    sections: list[Section]

    def as_dict(self) -> dict[str, Any]:
        """The explanation as JSON values, by section and key."""
        return {
            "subject": self.subject,
            "assumptions": self.assumptions,
            **{section.key: section.as_dict() for section in self.sections},
        }


def explain(
    deployment: Deployment, question: Question | None = None, only: Collection[SectionName] = SECTIONS
) -> Explanation:
    """Every figure of a deployment that can be worked out without a run.

    Raises:
        ScenarioError: if a parallel size does not divide the model, or ranks span nodes without a link. A model
            that does not fit is explained, not refused.
    """
    asked = question or Question()
    deployment.check()
    cost = (asked.envelope if asked.ideal else AnalyticCost()).start(deployment)
    priced = Priced(deployment, cost, asked.envelope, asked.ideal)
    prompt, output = asked.prompt_tokens, asked.output_tokens
    context = prompt + output // 2
    makers = {
        "memory": lambda: memory_section(deployment, prompt + output),
        "prefill": lambda: prefill_section(priced, prompt),
        "decode": lambda: decode_section(priced, asked.batch or 1, context, asked.num_speculative_tokens),
        "capacity": lambda: capacity_section(priced, prompt, output, asked.batch, asked.rate_per_s),
    }
    sections = [makers[name]() for name in SECTIONS if name in only]
    return Explanation(_subject(deployment), _assumptions(deployment, asked), sections)


def _subject(deployment: Deployment) -> str:
    sizes = {
        "TP": deployment.tensor_parallel_size,
        "PP": deployment.pipeline_parallel_size,
        "DP": deployment.data_parallel_size,
    }
    layout = "".join(f", {name} {size}" for name, size in sizes.items() if size > 1)
    layout += ", expert parallel" if deployment.enable_expert_parallel else ""
    accelerator = deployment.accelerator.name
    return (
        f"{deployment.model.name} on {deployment.gpus} x {accelerator}{layout}; weights {deployment.weight_dtype}, "
        f"KV {deployment.kv_dtype}, engine {deployment.engine}"
    )


def _assumptions(deployment: Deployment, asked: Question) -> list[str]:
    """Where the efficiencies are from."""
    envelope, efficiency = asked.envelope, deployment.accelerator.efficiency
    if asked.ideal:
        reduce = f", {envelope.all_reduce_s * 1e6:g} us an all-reduce" if deployment.tensor_parallel_size > 1 else ""
        return [
            f"Ideal: {envelope.mfu:g} of peak FLOP/s, {envelope.mbu:g} of HBM bandwidth{reduce}, compute, memory and "
            "links overlapped; no launches, no host, activations on the chip."
        ]
    name, experts = deployment.accelerator.name, deployment.model.moe is not None
    told = [f"Known errors: {stated_sentence(name, deployment.weight_dtype, experts)}."]
    if efficiency.borrowed_from:
        told.insert(0, f"Efficiencies of {name} are borrowed from {efficiency.borrowed_from}, not fitted.")
    return told
