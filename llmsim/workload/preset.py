"""Workloads like a public trace, drawn from statistics of it, so that no trace needs to be at hand."""

from typing import Annotated, Literal, Self

import numpy as np
from numpy.random import Generator
from pydantic import Field, PositiveFloat, PositiveInt, TypeAdapter, model_validator

from llmsim.catalog import entry
from llmsim.errors import ScenarioError
from llmsim.specification import specification
from llmsim.workload.arrivals import STEADY, Floats, Poisson, RateProfile, arrivals_until_s, first_arrivals_s
from llmsim.workload.random_streams import stream
from llmsim.workload.table import Ints, RequestTable

LengthQuantiles = Annotated[tuple[PositiveInt, ...], Field(min_length=2)]
"""Lengths at evenly spaced shares from 0 to 1."""


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
    prompt_tokens: LengthQuantiles
    output_tokens_by_prompt: Annotated[tuple[LengthQuantiles, ...], Field(min_length=1)]
    """One row for each bin of the prompt's rank, the bins being equally filled: how outputs depend on prompts."""

    def lengths(self, count: int, prompt_rng: Generator, output_rng: Generator) -> tuple[Ints, Ints]:
        """The next ``count`` pairs of prompt and output length, by inverting the two distributions."""
        rank, share = prompt_rng.random(count), output_rng.random(count)
        outputs = np.array(self.output_tokens_by_prompt)
        bins = (rank * len(outputs)).astype(np.int64)
        place = share * (outputs.shape[1] - 1)
        below = place.astype(np.int64)
        low, high = outputs[bins, below], outputs[bins, below + 1]
        output = np.rint(low + (place - below) * (high - low)).astype(np.int64)
        grid = np.linspace(0, 1, len(self.prompt_tokens))
        return np.rint(np.interp(rank, grid, self.prompt_tokens)).astype(np.int64), output


@specification
class PresetWorkload:
    """A workload with the lengths, and the rate from minute to minute, of a public trace.

    Within a minute arrivals are Poisson.
    """

    kind: Literal["preset"] = "preset"
    name: str = "azure-conversation-2023"
    """Name in the catalogue of workloads."""
    rate_per_s: PositiveFloat | None = None
    """Mean rate over the whole workload; None: the trace's own."""
    vary_rate: bool = True
    """Whether the rate varies from minute to minute as in the trace, or stays at its mean."""
    requests: PositiveInt | None = None
    """How many; None: as many as come in ``duration_s``, and without that as many as the trace has."""
    duration_s: PositiveFloat | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.requests is not None and self.duration_s is not None:
            raise ValueError("give requests or duration_s, not both")
        return self

    def generate(self, seed: int) -> RequestTable:
        """The requests, in order of arrival. Raises ScenarioError for an unknown name, and when there is none."""
        trace = TypeAdapter(TraceStatistics).validate_python(entry("workloads", self.name))
        arrival_s = self._arrivals_s(trace, stream(seed, f"workload/{self.name}/arrivals"))
        if not len(arrival_s):
            raise ScenarioError(f"workload: no request arrives within duration_s = {self.duration_s}")
        prompt_rng, output_rng = (stream(seed, f"workload/{self.name}/lengths/{of}") for of in ("prompt", "output"))
        prompts, outputs = trace.lengths(len(arrival_s), prompt_rng, output_rng)
        return RequestTable.build(
            arrival_s=arrival_s, prompt_tokens=prompts, output_tokens=outputs, client_names=(self.name,)
        )

    def _arrivals_s(self, trace: TraceStatistics, rng: Generator) -> Floats:
        """Arrivals whose mean rate is the one asked for whichever part of the trace's profile they cover."""
        rate_per_s = self.rate_per_s or trace.mean_rate_per_s
        profile = trace.rate_profile if self.vary_rate else STEADY
        if self.duration_s is None:
            count = self.requests or trace.requests
            share = profile.integral(count / rate_per_s) / (count / rate_per_s)
            return profile.warp(first_arrivals_s(Poisson(), rate_per_s / share, count, rng))
        share = profile.integral(self.duration_s) / self.duration_s
        return profile.warp(
            arrivals_until_s(Poisson(), rate_per_s / share, profile.integral(self.duration_s), rng)
        )
