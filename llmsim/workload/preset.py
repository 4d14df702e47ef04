"""Workloads like a public trace, drawn from statistics of it, so that no trace needs to be at hand."""

from typing import Literal, Self

import numpy as np
from numpy.random import Generator
from pydantic import Field, PositiveFloat, PositiveInt, TypeAdapter, model_validator

from llmsim.catalog import entry
from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.workload.arrivals import Arrivals, Floats, Poisson, arrivals_until_s, first_arrivals_s
from llmsim.workload.clients import Client, ClientsWorkload
from llmsim.workload.lengths import Quantiles
from llmsim.workload.random_streams import stream
from llmsim.workload.rates import STEADY, Steps
from llmsim.workload.reuse import PrefixReuse
from llmsim.workload.table import Ints, RequestTable


@specification
class TraceStatistics:
    """What a catalogue entry says of a trace."""

    name: str
    description: str
    source: str
    licence: str
    requests: PositiveInt
    """How many a workload has when nothing else is asked for: as many as the trace, if that is not too many."""
    mean_rate_per_s: PositiveFloat
    arrivals: Arrivals = Poisson()
    """The law of the gaps, the rate profile taken out."""
    rate_profile: Steps
    prompt_tokens: Quantiles
    output_tokens_by_prompt: tuple[Quantiles, ...] = Field(min_length=1)
    """How outputs depend on prompts: a law for each of equally large groups of prompts, shortest first."""
    prefix_reuse: PrefixReuse | None = None
    """What prompts have in common with earlier ones; None: nothing is known of it."""

    def lengths(self, prompt_shares: Floats, output_shares: Floats) -> tuple[Ints, Ints]:
        """Prompt and output lengths at these shares: of all prompts, and of the outputs of such prompts."""
        prompts, outputs = self.prompt_tokens.at(prompt_shares), np.empty(len(output_shares), np.int64)
        law_of_row = (prompt_shares * len(self.output_tokens_by_prompt)).astype(np.int64)
        for index, law in enumerate(self.output_tokens_by_prompt):
            rows = law_of_row == index
            outputs[rows] = law.at(output_shares[rows])
        return prompts, outputs


@specification
class ConstructedWorkload:
    """A catalogue entry that is made of clients, from stated assumptions rather than from one trace."""

    name: str
    description: str
    source: str
    licence: str
    requests: PositiveInt
    """How many a workload has when nothing else is asked for."""
    mean_rate_per_s: PositiveFloat
    """Rate at which sessions begin."""
    clients: tuple[Client, ...]
    """Each with a ``share``."""


@specification
class PresetWorkload:
    """A workload of the catalogue: drawn from statistics of a public trace, or made of typical clients.

    One from a trace has its lengths, its rate from step to step, and within a step its law of gaps.
    """

    kind: Literal["preset"] = "preset"
    name: str = "azure-conversation-2023"
    """Name in the catalogue of workloads."""
    rate_per_s: PositiveFloat | None = None
    """Mean rate over the whole workload, however long it is, of clients that of sessions; None: the entry's own."""
    vary_rate: bool = True
    """Whether the rate varies from step to step as in the trace, or stays at its mean."""
    requests: PositiveInt | None = None
    """How many; None: as many as come in ``duration_s``, and without that as many as the entry says."""
    duration_s: PositiveFloat | None = None
    """Instead of ``requests``: how long requests come."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.requests is not None and self.duration_s is not None:
            raise ValueError("give either requests or duration_s")
        return self

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival. Raises ScenarioError for an unknown name or no request."""
        found = preset(self.name)
        if isinstance(found, ConstructedWorkload):
            return self._of_clients(found).generate(seed)
        return self._of_trace(found, seed)

    def _of_clients(self, made: ConstructedWorkload) -> ClientsWorkload:
        requests = self.requests if self.requests or self.duration_s else made.requests
        rate_per_s = self.rate_per_s or made.mean_rate_per_s
        return ClientsWorkload(
            clients=made.clients, rate_per_s=rate_per_s, requests=requests, duration_s=self.duration_s
        )

    def _of_trace(self, trace: TraceStatistics, seed: int) -> RequestTable:
        arrival_s = self._arrivals_s(trace, stream(seed, f"workload/{trace.name}/arrivals"))
        count = len(arrival_s)
        if not count:
            raise ScenarioError(f"workload: no request arrives within duration_s = {self.duration_s}")

        def shares(purpose: str) -> Floats:
            return stream(seed, f"workload/{trace.name}/{purpose}").random(count)

        prompt_shares = shares("lengths/prompt")
        prompts, outputs = trace.lengths(prompt_shares, shares("lengths/output"))
        segments = None
        if trace.prefix_reuse is not None:
            draws = shares("prefixes/share"), shares("prefixes/after")
            segments = trace.prefix_reuse.segments(arrival_s, prompts, outputs, prompt_shares, *draws)
        return RequestTable.build(
            arrival_s=arrival_s,
            prompt_tokens=prompts,
            output_tokens=outputs,
            segments=segments,
            client_names=(trace.name,),
        )

    def _arrivals_s(self, trace: TraceStatistics, rng: Generator) -> Floats:
        """Arrivals whose mean rate is the one asked for, whichever part of the trace's profile they cover."""
        profile = trace.rate_profile if self.vary_rate else STEADY
        rate_per_s = self.rate_per_s or trace.mean_rate_per_s
        count = self.requests or trace.requests
        span_s = self.duration_s or count / rate_per_s
        steady_span_s = profile.integral(span_s)
        if not steady_span_s:
            return np.zeros(0)
        steady_rate_per_s = rate_per_s * span_s / steady_span_s
        if self.duration_s is None:
            return profile.warp(first_arrivals_s(trace.arrivals, steady_rate_per_s, count, rng))
        return profile.warp(arrivals_until_s(trace.arrivals, steady_rate_per_s, steady_span_s, rng))


def preset(name: str) -> TraceStatistics | ConstructedWorkload:
    """A catalogue entry of that name. Raises ScenarioError when there is none."""
    facts = entry("workloads", name)
    kind: type[TraceStatistics | ConstructedWorkload] = ConstructedWorkload if "clients" in facts else TraceStatistics
    return TypeAdapter(kind).validate_python(facts)
