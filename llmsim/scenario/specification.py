"""``Scenario``: everything that decides a run, checked as a whole before anything runs.

A file becomes one through ``load_scenario``; in a notebook it is written out: ``Scenario(name="chat",
model="llama-3.1-8b", pools=[Pool(name="chat", accelerator="h100-sxm")], workload=PresetWorkload())``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from llmsim.cluster.router import LeastOutstanding
from llmsim.cost import AnalyticCost
from llmsim.deployment import Deployment
from llmsim.engine.settings import EngineSpec
from llmsim.errors import ScenarioError
from llmsim.faults import Schema, explain
from llmsim.model import Dtype
from llmsim.scenario.fields import ABSENT, Accelerator, AnyCost, AnyRouter, AnyWorkload, Model, Slo
from llmsim.scenario.settings import apply_settings
from llmsim.specification import specification

if TYPE_CHECKING:
    from llmsim.specification import Given


@specification
class Pool:
    """Replicas of one kind: the same model on the same hardware with the same settings.

    A replica has tensor_parallel_size * pipeline_parallel_size * data_parallel_size GPUs.
    """

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")
    """Its name in results and in dotted keys: letters, digits, - and _."""
    accelerator: Accelerator
    """Catalogue name, or a path to a .toml file."""
    replicas: PositiveInt = 1
    """Independent engines."""
    tensor_parallel_size: PositiveInt = 1
    """GPUs that share each layer of a replica."""
    pipeline_parallel_size: PositiveInt = 1
    """Groups of consecutive layers, each on GPUs of its own."""
    data_parallel_size: PositiveInt = 1
    """Only 1 is simulated."""
    enable_expert_parallel: bool = False
    """Divide the experts over the tensor parallel GPUs instead of cutting each into slices."""
    model: Model = ABSENT
    """Catalogue name, or a path to a config.json; absent: the scenario's."""
    dtype: Dtype | None = None
    """Of activations and unquantized weights; absent: the model's."""
    quantization: Dtype | None = None
    """Of the linear layers' weights; absent: the model's."""
    kv_cache_dtype: Literal["auto", "bfloat16", "float16", "fp8"] = "auto"
    """auto: that of the activations."""
    max_model_len: PositiveInt | Literal["auto"] = "auto"
    """Most tokens of a request, prompt and output.

    auto: the smaller of the model's and what the KV pool holds."""
    allow_long_max_model_len: bool = False
    """Accept an explicit max_model_len that the KV pool cannot hold, which a real server refuses to start
    with: requests that outgrow the pool then wait for ever."""
    num_gpu_blocks_override: int | None = Field(default=None, ge=2)
    """Replaces the computed number of KV blocks, of all groups of layers as vLLM counts; memory is then not checked."""
    enforce_eager: bool = False
    """No CUDA graphs: the host launches every kernel."""
    engine_version: str = Field(default="0.33", pattern=r"^\d+\.\d+")
    """Release of vLLM whose memory overheads, sampler and host times to assume."""
    sampling: Literal["greedy", "top_p"] = "greedy"
    """How tokens are chosen: the likeliest one, or at random among the likeliest (top_p; top-k costs the same)."""
    cost: AnyCost = AnalyticCost()
    """How long an iteration takes."""
    engine: EngineSpec = EngineSpec()
    """Scheduler and KV memory of each replica."""

    @model_validator(mode="after")
    def _holds_its_model(self) -> Self:
        if self.model is not None:
            self.deployment().ledger()
        return self

    def deployment(self) -> Deployment:
        """One engine of the pool, with every default that depends on the model and the accelerator filled in.

        Raises:
            ScenarioError: for batch sizes that vLLM refuses.
        """
        if self.model is None:
            raise ScenarioError(f"pool '{self.name}' has no model: it takes the scenario's when it is part of one")
        auto = self.max_model_len == "auto"
        max_model_len = self.model.max_position_embeddings if auto else self.max_model_len
        scheduler = self.engine.scheduler.resolve(self.accelerator, int(max_model_len))
        shared = {field.name for field in fields(Deployment)} & {field.name for field in fields(self)} - {"engine"}
        return Deployment(
            **{name: getattr(self, name) for name in shared},
            gpu_memory_utilization=self.engine.gpu_memory_utilization,
            block_size=self.engine.block_size,
            max_num_seqs=scheduler.max_num_seqs,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            enable_chunked_prefill=scheduler.enable_chunked_prefill,
            async_scheduling=scheduler.batches_in_flight > 1,
        )


if TYPE_CHECKING:
    Pools = Given[tuple[Pool, ...], Sequence[Pool]]
else:
    Pools = tuple[Pool, ...]


@specification
class Run:
    """How long to simulate, and what to keep of it."""

    horizon_s: PositiveFloat | None = None
    """When to stop; absent: when every request has ended."""
    warm_up_s: NonNegativeFloat = 0.0
    """What happens before is left out of the figures."""
    record: Literal["full", "requests", "summary"] = "full"
    """What to keep: every iteration, every request, or only the figures."""
    leap: bool = True
    """Jump over iterations in which nothing is decided; the results are the same without, only later."""

    @model_validator(mode="after")
    def _measures_something(self) -> Self:
        if self.horizon_s is not None and self.warm_up_s >= self.horizon_s:
            raise ValueError(f"warm_up_s = {self.warm_up_s:g} must be less than horizon_s = {self.horizon_s:g}")
        return self


@specification
class Scenario:
    """A serving system, its traffic, and what is asked of it."""

    name: str = Field(min_length=1)
    """What the scenario is, in a few words."""
    model: Model = Field(default=ABSENT)  # pydantic checks fields with Field first: pools need this one
    """Catalogue name, or a path to a config.json, of every pool that does not name its own."""
    seed: NonNegativeInt = 0
    """The same seed gives the same result, to the byte."""
    router: AnyRouter = LeastOutstanding()
    """Which replica serves a request."""
    pools: Pools = Field(min_length=1)
    """The engines that serve."""
    workload: AnyWorkload
    """The requests that come."""
    slo: Slo = Field(default_factory=dict)
    """Limits in seconds that latencies should keep: <ttft|tpot|itl|e2e>_<mean|p50|p90|p95|p99>_s."""
    run: Run = Run()
    """How long to simulate, and what to keep."""

    @field_validator("pools", mode="before")
    @classmethod
    def _share_model(cls, pools: Any, info: ValidationInfo) -> Any:
        model = info.data.get("model")
        if model is None or not isinstance(pools, list | tuple):
            return pools
        return [_with_model(pool, model) for pool in pools]

    @field_validator("pools")
    @classmethod
    def _tell_apart(cls, pools: tuple[Pool, ...], info: ValidationInfo) -> tuple[Pool, ...]:
        names = [pool.name for pool in pools]
        if len(set(names)) < len(names):
            raise ValueError(f"are named {', '.join(names)}; each needs a name of its own")
        nameless = [pool.name for pool in pools if pool.model is None]
        if nameless and "model" in info.data:
            raise ValueError(f"no model for {', '.join(nameless)}: give one to the scenario or to the pool")
        return pools

    @model_validator(mode="after")
    def _can_be_simulated(self) -> Self:
        faults = [
            f"pools[{index}].{size} = {getattr(pool, size)}: must be 1; more is not simulated"
            for index, pool in enumerate(self.pools)
            for size in ("data_parallel_size",)
            if getattr(pool, size) > 1
        ]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    @classmethod
    def parse(cls, data: Mapping[str, Any], folder: Path | None = None, source: str = "scenario") -> Self:
        """A scenario from tables as a file holds them; relative paths start at ``folder``.

        Raises:
            ScenarioError: with a line for each fault, which begins with ``source``.
        """
        adapter = TypeAdapter(cls)
        try:
            return adapter.validate_python(data, context={"folder": folder})
        except ValidationError as error:
            lines = explain(error, adapter.json_schema())
        raise ScenarioError("\n".join(f"{source}: {line}" for line in lines))

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """This scenario with other values at dotted keys: ``{"workload.rate_per_s": 6, "seed": 1}``.

        A new ``model`` goes to all pools but those that have another one than the scenario.

        Raises:
            ScenarioError: with a line for each fault.
        """
        followers = [replace(pool, model=None) if pool.model == self.model else pool for pool in self.pools]
        data = {"pools": followers} if "model" in settings else {}
        return self.parse(apply_settings({**_table(self), **data}, settings))

    def canonical(self) -> str:
        """The scenario as JSON, enough to repeat the run: keys sorted, defaults and hardware filled in.

        A policy of the user's own class is written by its fields if it is a dataclass, otherwise by its name.
        """
        return json.dumps(_plain(self), sort_keys=True, indent=1, allow_nan=False)


def scenario_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of scenario files, for editors that complete and explain keys."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(Scenario).json_schema()}


def _with_model(pool: Any, model: Any) -> Any:
    if isinstance(pool, Pool):
        return replace(pool, model=model) if pool.model is None else pool
    return {**pool, "model": pool.get("model") or model} if isinstance(pool, Mapping) else pool


def _table(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if is_dataclass(value):
        return {name: _plain(each) for name, each in _table(value).items()}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Path):
        return value.as_posix()
    if value is None or isinstance(value, str | int | float):
        return value
    return f"{type(value).__module__}.{type(value).__qualname__}"
