"""Cases that a scenario answers: an engine, the load it is under, and the figures a benchmark would print of it.

All fields are names and numbers, so that cases can be compared, counted and sent to another process.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from llmsim.engine.orca import OrcaScheduler
from llmsim.engine.settings import EngineSpec, SchedulerSpec
from llmsim.engine.static import StaticScheduler
from llmsim.engine.vllm import VllmScheduler
from llmsim.engine.vllm_v0 import VllmV0Scheduler
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.model import load_model
from llmsim.results.results import Results
from llmsim.scenario import Pool, Run, Scenario
from llmsim.simulation import simulate
from llmsim.validation.facts import Prediction
from llmsim.workload.arrivals import Constant, Poisson
from llmsim.workload.lengths import Fixed, Lengths, Lognormal, Uniform
from llmsim.workload.loops import capped
from llmsim.workload.random_streams import stream
from llmsim.workload.table import RequestTable

SPREAD = 4.0
"""Where only a mean length is stated and requests are real ones: the 99 % quantile of a lognormal law over its mean.
ShareGPT, as vLLM's benchmark filters it, has 3.6 for prompts and 5.3 for answers (dstackai/benchmarks)."""
LEAST_SHARE = 0.8
"""InferenceX draws each length between this share of the nominal one and all of it (its RANDOM_RANGE_RATIO)."""
OF_STATIC_BATCH = {"prefill": "ttft", "decode_step": "tpot"}
"""Which latency of its requests each metric of a static batch is."""
WAVES = 4
"""A backlog is simulated over so many times the requests that run together."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine by catalogue names and vLLM's arguments; None: the default."""

    model: str
    accelerator: str
    tensor_parallel_size: int = 1
    replicas: int = 1
    quantization: str | None = None
    kv_cache_dtype: Literal["auto", "bfloat16", "float16", "fp8"] = "auto"
    scheduler: Literal["vllm", "vllm_v0", "static", "orca"] = "vllm"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    """May be longer than the model was trained for: what was measured was served."""
    enable_chunked_prefill: bool = True
    async_scheduling: bool = True
    enable_prefix_caching: bool = True
    enable_expert_parallel: bool = False
    enforce_eager: bool = False
    eager_layer_s: float | None = None
    """Host time to launch a layer's kernels without CUDA graphs; None: the catalogue's."""
    eager_prefill_s: float = 0.0
    """Further host time of an iteration with prompts."""
    engine_version: str = "0.33"
    sampling: Literal["greedy", "top_p"] = "greedy"
    gpu_memory_utilization: float = 0.9
    num_gpu_blocks: int | None = None
    in_engine: bool = False
    """Times are of the engine alone: no API server before it."""

    def pool(self, accelerator: AcceleratorSpec | None = None) -> Pool:
        """The engine as a pool. Raises ScenarioError when the model does not fit."""
        found = accelerator or load_accelerator(self.accelerator)
        changes: dict[str, Any] = {}
        if self.in_engine:
            changes["request_s"] = 0.0
        if self.eager_layer_s is not None:
            changes |= {"host_eager_layer_s": self.eager_layer_s, "host_prefill_iteration_s": self.eager_prefill_s}
        if changes:
            found = replace(found, efficiency=replace(found.efficiency, **changes))
        model = load_model(self.model)
        if self.max_model_len is not None and self.max_model_len > model.max_position_embeddings:
            model = replace(model, max_position_embeddings=self.max_model_len)
        given: dict[str, Any] = {
            "quantization": self.quantization,
            "max_model_len": self.max_model_len or "auto",
            "num_gpu_blocks_override": self.num_gpu_blocks,
        }
        return Pool(
            name="measured",
            model=model,
            accelerator=found,
            replicas=self.replicas,
            tensor_parallel_size=self.tensor_parallel_size,
            kv_cache_dtype=self.kv_cache_dtype,
            enable_expert_parallel=self.enable_expert_parallel,
            enforce_eager=self.enforce_eager,
            engine_version=self.engine_version,
            sampling=self.sampling,
            engine=EngineSpec(
                scheduler=self._scheduler(),
                enable_prefix_caching=self.enable_prefix_caching,
                gpu_memory_utilization=self.gpu_memory_utilization,
            ),
            **given,
        )

    def _scheduler(self) -> SchedulerSpec:
        if self.scheduler == "static":
            return StaticScheduler(max_num_seqs=self.max_num_seqs)
        if self.scheduler == "orca":
            return OrcaScheduler(max_num_seqs=self.max_num_seqs)
        if self.scheduler == "vllm_v0":
            return VllmV0Scheduler(max_num_seqs=self.max_num_seqs)
        return VllmScheduler(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            enable_chunked_prefill=self.enable_chunked_prefill,
            async_scheduling=self.async_scheduling,
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of known mean lengths: at a rate, or all at once; in a closed loop with ``concurrency``."""

    requests: int
    prompt_tokens: float
    output_tokens: float
    concurrency: int | None = None
    """Most requests in flight: users of a closed loop, workers of a load generator."""
    rate_per_s: float | None = None
    """None: all at once."""
    constant: bool = False
    """Arrivals at equal distances, instead of a Poisson process."""
    lengths: Literal["fixed", "nominal", "varied"] = "fixed"
    """All alike; uniform below the nominal one, as InferenceX draws them; or lognormal around the mean."""
    shared_prefix_tokens: int = 0
    shared_prefixes: int = 1
    questions: int = 1
    """Distinct prompts after each shared prefix."""

    def generate(self, seed: int) -> RequestTable:
        """The requests."""
        arrivals_rng, prompt_rng, output_rng = (
            stream(seed, f"workload/measured/{purpose}") for purpose in ("arrivals", "lengths/prompt", "lengths/output")
        )
        count = self.requests
        process = Constant() if self.constant else Poisson()
        arrival_s = np.cumsum(process.gaps(count, arrivals_rng)) / self.rate_per_s if self.rate_per_s else 0.0
        prompts = self._law(self.prompt_tokens).draw(count, prompt_rng)
        outputs = self._law(self.output_tokens).draw(count, output_rng)
        table = RequestTable.build(
            arrival_s=np.broadcast_to(arrival_s, count),
            prompt_tokens=prompts,
            output_tokens=outputs,
            max_tokens=-1 if self.lengths == "varied" else outputs,
            segments=self._segments(prompts) if self.shared_prefix_tokens else None,
        )
        return table if self.concurrency is None else capped(table, self.concurrency)

    def _law(self, mean: float) -> Lengths:
        if self.lengths == "varied":
            return Lognormal(mean=max(mean, 1.0), p99=SPREAD * max(mean, 1.0))
        if self.lengths == "nominal":
            return Uniform(low=max(1, round(LEAST_SHARE * mean)), high=max(1, round(mean)))
        return Fixed(tokens=max(1, round(mean)))

    def _segments(self, prompts: Any) -> Any:
        """A shared prefix and one of its questions, in turn; streams of prefixes before those of questions."""
        distinct = np.arange(len(prompts)) % (self.shared_prefixes * self.questions)
        streams = np.stack([distinct % self.shared_prefixes, self.shared_prefixes + distinct], axis=1).ravel()
        tokens = np.stack(
            [np.full(len(prompts), self.shared_prefix_tokens), prompts - self.shared_prefix_tokens], axis=1
        )
        return np.arange(len(prompts) + 1) * 2, streams, np.zeros(2 * len(prompts), np.int64), tokens.ravel()


@dataclass(frozen=True, slots=True)
class Replay:
    """Requests whose arrivals and lengths were measured."""

    arrival_ns: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def generate(self, seed: int) -> RequestTable:
        """The requests, the same for every seed."""
        return RequestTable.build(
            arrival_ns=self.arrival_ns, prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens
        )


@dataclass(frozen=True, slots=True)
class Served:
    """An engine under a load."""

    engine: Engine
    load: Load | Replay
    backlog: bool = False
    """Requests never run out: throughput is that between the first and the last admission."""
    warm_up_s: float = 0.0
    """Of a load without end: figures are of what comes later, while requests still arrive."""

    def predict(self, accelerator: AcceleratorSpec | None = None) -> Prediction:
        """Simulate it. Raises ScenarioError when the model does not fit."""
        results = self.run(accelerator)
        values = figures(results)
        if self.backlog:
            values |= saturated(results)
        if self.warm_up_s:
            values |= steady(results, self.warm_up_s)
        return Prediction(values, diagnosis(results.figures()))

    def run(self, accelerator: AcceleratorSpec | None = None) -> Results:
        """The results of the whole run."""
        pool = self.engine.pool(accelerator)
        run = Run(record="requests", warm_up_s=self.warm_up_s)
        load: Any = self.load
        return simulate(Scenario(name="measured", pools=(pool,), workload=load, run=run))


def figures(results: Results) -> dict[str, float]:
    """The figures a benchmark prints, in SI units, by ``metric_statistic``."""
    summary = results.figures()
    found = {
        f"{metric}_{statistic}": value
        for metric in ("ttft", "tpot", "itl", "e2e", "queue")
        for statistic, value in summary[f"{metric}_s"].items()
    }
    found |= {
        f"{name}_{statistic}": found[f"{metric}_{statistic}"]
        for name, metric in OF_STATIC_BATCH.items()
        for statistic in ("mean", "p50", "p90", "p99", "max")
    }
    found |= {
        "batch_e2e_mean": summary["e2e_s"]["max"],
        "makespan_total": summary["duration_s"],
        "output_throughput_mean": summary["output_throughput_tokens_per_s"],
        "request_throughput_mean": summary["request_throughput_per_s"],
    }
    return {key: value for key, value in found.items() if value is not None}


def saturated(results: Results) -> dict[str, float]:
    """Throughput while a backlog lasts: a request is admitted when another has ended.

    Between the admission of the last of those that began together and that of the last of all.
    """
    requests = results.requests
    requests = requests[requests.outcome == "finished"].sort_values("first_scheduled_s", kind="stable")
    admitted, outputs = requests.first_scheduled_s.to_numpy(), requests.output_tokens.to_numpy()
    together = int(np.searchsorted(admitted, requests.finish_s.min(), side="left"))
    if not 0 < together < len(admitted) or admitted[-1] <= admitted[together - 1]:
        return {}
    rate_per_s = (len(admitted) - together) / (admitted[-1] - admitted[together - 1])
    return {
        "request_throughput_mean": float(rate_per_s),
        "output_throughput_mean": float(rate_per_s * outputs[together:].mean()),
    }


def steady(results: Results, warm_up_s: float) -> dict[str, float]:
    """Throughput from the end of the warm-up to the last arrival."""
    requests = results.requests
    end_s = requests.arrival_s.max()
    ended = requests[(requests.finish_s > warm_up_s) & (requests.finish_s <= end_s)]
    return {
        "request_throughput_mean": len(ended) / (end_s - warm_up_s),
        "output_throughput_mean": float(ended.output_tokens.sum()) / (end_s - warm_up_s),
    }


def diagnosis(summary: dict[str, Any]) -> str:
    """What bound a run, in a few words: a first hint at where an error comes from."""
    bound = {name: share for name, share in summary["bound"].items() if name != "idle"}
    busiest = max(bound, key=bound.__getitem__)
    parts = ["host and launches" if busiest == "overhead" else busiest]
    queue_s, ttft_s = summary["queue_s"]["mean"], summary["ttft_s"]["mean"]
    if summary["preemptions"] or summary["kv_usage"]["max"] > 0.97:
        parts.append("KV full")
    if queue_s is not None and queue_s > 0.5 * ttft_s:
        parts.append("queueing")
    return ", ".join(parts)
