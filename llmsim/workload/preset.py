"""Workloads like a public trace, drawn from statistics of it, so that no trace needs to be at hand."""

from typing import Literal, Self

import numpy as np
from numpy.random import Generator
from pydantic import Field, PositiveFloat, PositiveInt, TypeAdapter, model_validator

from llmsim.catalog import entry
from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.workload.arrivals import STEADY, Floats, Poisson, RateProfile, arrivals_until_s, first_arrivals_s
from llmsim.workload.lengths import Quantiles
from llmsim.workload.random_streams import stream
from llmsim.workload.table import Ints, RequestTable


@specification
class TraceStatistics:
    """What a catalogue entry says of a trace."""

    name: str
    description: str
    source: str
    licence: str
    requests: PositiveInt
    mean_rate_per_s: PositiveFloat
    rate_profile: RateProfile
    prompt_tokens: Quantiles
    output_tokens_by_prompt: tuple[Quantiles, ...] = Field(min_length=1)
    """How outputs depend on prompts: a law for each of equally large groups of prompts, shortest first."""

    def lengths(self, prompt_shares: Floats, output_shares: Floats) -> tuple[Ints, Ints]:
        """Prompt and output lengths at these shares: of all prompts, and of the outputs of such prompts."""
        prompts, outputs = self.prompt_tokens.at(prompt_shares), np.empty(len(output_shares), np.int64)
        law_of_row = (prompt_shares * len(self.output_tokens_by_prompt)).astype(np.int64)
        for index, law in enumerate(self.output_tokens_by_prompt):
            rows = law_of_row == index
            outputs[rows] = law.at(output_shares[rows])
        return prompts, outputs


@specification
class PresetWorkload:
    """A workload with the lengths, and the rate from minute to minute, of a public trace.

    Within a minute arrivals are Poisson.
    """

    kind: Literal["preset"] = "preset"
    name: str = "azure-conversation-2023"
    """Name in the catalogue of workloads."""
    rate_per_s: PositiveFloat | None = None
    """Mean rate over the whole workload, however long it is; None: the trace's own."""
    vary_rate: bool = True
    """Whether the rate varies from minute to minute as in the trace, or stays at its mean."""
    requests: PositiveInt | None = None
    """How many; None: as many as come in ``duration_s``, and without that as many as the trace has."""
    duration_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.requests is not None and self.duration_s is not None:
            raise ValueError("give either requests or duration_s")
        return self

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival. Raises ScenarioError for an unknown name or no request."""
        trace = TypeAdapter(TraceStatistics).validate_python(entry("workloads", self.name))
        arrival_s = self._arrivals_s(trace, stream(seed, f"workload/{trace.name}/arrivals"))
        if not len(arrival_s):
            raise ScenarioError(f"workload: no request arrives within duration_s = {self.duration_s}")
        prompts, outputs = trace.lengths(
            stream(seed, f"workload/{trace.name}/lengths/prompt").random(len(arrival_s)),
            stream(seed, f"workload/{trace.name}/lengths/output").random(len(arrival_s)),
        )
        return RequestTable.build(
            arrival_s=arrival_s, prompt_tokens=prompts, output_tokens=outputs, client_names=(trace.name,)
        )

    def _arrivals_s(self, trace: TraceStatistics, rng: Generator) -> Floats:
        """Arrivals whose mean rate is the one asked for, whichever part of the trace's profile they cover."""
        profile = trace.rate_profile if self.vary_rate else STEADY
        rate_per_s = self.rate_per_s or trace.mean_rate_per_s
        count = self.requests or trace.requests
        span_s = self.duration_s or count / rate_per_s
        steady_span_s = profile.integral(span_s)
        steady_rate_per_s = rate_per_s * span_s / steady_span_s
        if self.duration_s is None:
            return profile.warp(first_arrivals_s(Poisson(), steady_rate_per_s, count, rng))
        return profile.warp(arrivals_until_s(Poisson(), steady_rate_per_s, steady_span_s, rng))
