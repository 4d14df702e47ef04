"""The options of the command line as a deployment and a question."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from llmsim.catalog import suggestion
from llmsim.closed_form import EnvelopeCost
from llmsim.deployment import Deployment
from llmsim.errors import ScenarioError
from llmsim.faults import build
from llmsim.hardware import load_accelerator
from llmsim.model import load_model
from llmsim.report.explain.explanation import SECTIONS, Explanation, Question, explain

_QUESTION = {
    "prompt": "prompt_tokens",
    "output": "output_tokens",
    "batch": "batch",
    "rate": "rate_per_s",
    "num_speculative_tokens": "num_speculative_tokens",
    "ideal": "ideal",
}


def explained(options: Mapping[str, Any]) -> Explanation:
    """The explanation that options ask for: those of a ``Deployment`` by its field names, and the question's.

    Raises:
        ScenarioError: naming the option, the value and what is allowed.
    """
    given = {key: value for key, value in options.items() if value is not None}
    only = given.get("only") or SECTIONS
    for name in only:
        if name not in SECTIONS:
            raise ScenarioError(f"--only {name}{suggestion(name, SECTIONS) or ':'} Allowed: {', '.join(SECTIONS)}.")
    laid = {field.name: given[field.name] for field in fields(Deployment) if field.name in given}
    laid |= {"model": load_model(given["model"]), "accelerator": load_accelerator(given["accelerator"])}
    asked = {name: given[option] for option, name in _QUESTION.items() if option in given}
    constants: dict[str, Any] = {key: given[key] for key in ("mfu", "mbu") if key in given}
    question = build(Question, {**asked, "envelope": build(EnvelopeCost, constants, "explain")}, "explain")
    return explain(build(Deployment, laid, "explain"), question, only)
