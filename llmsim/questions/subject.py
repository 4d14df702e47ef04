"""What a question is asked of: a model on an accelerator, laid out so that it fits, and runs on it."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmsim.closed_form import EnvelopeCost
from llmsim.cluster.router import RoundRobin, RouterSpec
from llmsim.cost import CostModel
from llmsim.deployment import Deployment
from llmsim.deployment.memory import fullest_groups
from llmsim.engine.settings import EngineSpec, SchedulerSpec
from llmsim.engine.vllm import VllmScheduler
from llmsim.errors import ScenarioError
from llmsim.faults import build
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.model import Dtype, ModelSpec, load_model
from llmsim.results.results import Results
from llmsim.scenario import Pool, Run, Scenario
from llmsim.simulation import simulate
from llmsim.workload import Client, ClientsWorkload
from llmsim.workload.lengths import Fixed, Lengths

LEAST_KV_TOKENS = 16_384
"""Tokens that the KV pool must hold for a layout to count as one that serves."""
LEAST_LENGTH = 2048
"""Tokens, prompt and output, that every question needs at least."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model on an accelerator, and the tensor parallel size with which it is asked about."""

    model: ModelSpec
    accelerator: AcceleratorSpec
    tensor_parallel_size: int
    quantization: Dtype | None = None
    kv_cache_dtype: str = "auto"
    names: tuple[str, str] = field(default=("", ""))
    """Model and accelerator as the user gave them, for commands."""
    notes: tuple[str, ...] = ()
    """What was chosen for the user, and what is only assumed."""

    @property
    def gpus(self) -> int:
        """Accelerators of one engine."""
        return self.tensor_parallel_size

    @property
    def described(self) -> str:
        """In a few words: ``llama-3.1-8b on one h100-sxm``."""
        count = "one" if self.gpus == 1 else str(self.gpus)
        weights = f", weights {self.quantization}" if self.quantization else ""
        cache = f", KV {self.kv_cache_dtype}" if self.kv_cache_dtype != "auto" else ""
        return f"{self.model.name} on {count} {self.accelerator.name}{weights}{cache}"

    @property
    def flags(self) -> str:
        """The same as options of ``llmsim explain``."""
        given: dict[str, Any] = {"model": self.names[0], "accelerator": self.names[1]}
        if self.tensor_parallel_size > 1:
            given["tensor-parallel-size"] = self.tensor_parallel_size
        if self.quantization:
            given["quantization"] = self.quantization
        if self.kv_cache_dtype != "auto":
            given["kv-cache-dtype"] = self.kv_cache_dtype
        return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in given.items())

    @property
    def settings(self) -> str:
        """The same as settings of a scenario with one pool, for ``llmsim run``."""
        given: dict[str, Any] = {"model": self.names[0], "pools.accelerator": self.names[1]}
        if self.tensor_parallel_size > 1:
            given["pools.tensor_parallel_size"] = self.tensor_parallel_size
        if self.quantization:
            given["pools.quantization"] = self.quantization
        return " ".join(f"--set {shlex.quote(f'{name}={value}')}" for name, value in given.items())

    def pool(self, scheduler: SchedulerSpec | None = None, enable_prefix_caching: bool = True, **given: Any) -> Pool:
        """Engines of this layout; ``given`` are further fields of a ``Pool``.

        Raises:
            ScenarioError: if it does not fit, or for batch sizes that vLLM refuses.
        """
        fields = {
            "name": "pool",
            "model": self.model,
            "accelerator": self.accelerator,
            "tensor_parallel_size": self.tensor_parallel_size,
            "quantization": self.quantization,
            "kv_cache_dtype": self.kv_cache_dtype,
            "engine": EngineSpec(scheduler=scheduler or VllmScheduler(), enable_prefix_caching=enable_prefix_caching),
        }
        return build(Pool, {**fields, **given}, self.described)

    def deployment(self, **given: Any) -> Deployment:
        """One engine of ``pool``."""
        return self.pool(**given).deployment()

    def envelope(self, **given: Any) -> CostModel:
        """Iteration times by the back of the envelope."""
        return EnvelopeCost().start(self.deployment(**given))

    @property
    def longest(self) -> int:
        """Tokens that a request may have, prompt and output."""
        return self.deployment().ledger().max_model_len

    def blocks_of_pool(self, tokens: int) -> int:
        """KV blocks of a pool that holds so many tokens at full length, the null block included."""
        deployment = self.deployment()
        return round(tokens // deployment.block_size * fullest_groups(deployment).width) + 1

    def run(
        self,
        clients: Client | Sequence[Client],
        requests: int | None = None,
        router: RouterSpec | None = None,
        slo: dict[str, float] | None = None,
        **given: Any,
    ) -> Results:
        """Simulate these clients; ``given`` are fields of ``pool``."""
        scenario = Scenario(
            name=self.described,
            router=router or RoundRobin(),
            pools=(self.pool(**given),),
            workload=ClientsWorkload(
                clients=(clients,) if isinstance(clients, Client) else tuple(clients), requests=requests
            ),
            slo=slo or {},
            run=Run(record="requests"),
        )
        return simulate(scenario)

    def summary(self, *clients: Client, **given: Any) -> dict[str, Any]:
        """The figures of ``run``."""
        return self.run(clients, **given).figures()

    def alone(self, prompt_tokens: int, output_tokens: int, **given: Any) -> dict[str, Any]:
        """The figures of one request with nobody else there."""
        return self.summary(a_client(prompt_tokens, output_tokens, rate_per_s=1.0), requests=1, **given)


def a_client(prompt_tokens: int | Lengths, output_tokens: int | Lengths, **given: Any) -> Client:
    """A source of requests; lengths are laws, or whole numbers for fixed ones."""
    prompt, output = (Fixed(tokens=each) if isinstance(each, int) else each for each in (prompt_tokens, output_tokens))
    return Client(**{"name": "client", "prompt_tokens": prompt, "output_tokens": output, **given})


def users(
    count: int, prompt_tokens: int | Lengths, output_tokens: int | Lengths, requests_each: int = 3, **given: Any
) -> Client:
    """A closed loop that keeps ``count`` requests in flight: how an engine is saturated."""
    return a_client(prompt_tokens, output_tokens, users=count, requests_per_user=requests_each, **given)


def subject_of(model: str, accelerator: str, fp8: bool = False) -> Subject:
    """A model on as few accelerators of a node as hold it.

    The smallest tensor parallel size whose KV pool holds ``LEAST_KV_TOKENS``, the largest that fits if none does. With
    ``fp8``, weights and KV are in fp8 where the accelerator computes in it, and weights take a third of memory at most.

    Raises:
        ScenarioError: for an unknown name, a faulty file, or a model that no node of these accelerators holds.
    """
    found = Subject(load_model(model), load_accelerator(accelerator), 1, names=(model, accelerator))
    if fp8 and "fp8" in found.accelerator.peak_flop_per_s:
        found = replace(found, quantization="fp8", kv_cache_dtype="fp8")
    kept, refusal = None, None
    for size in sizes_of(found):
        sized = replace(found, tensor_parallel_size=size)
        try:
            ledger = sized.deployment().ledger()
        except ScenarioError as error:
            refusal = refusal or error
            continue
        kept = sized
        if ledger.kv_tokens >= LEAST_KV_TOKENS and (not fp8 or 3 * ledger.weights_bytes <= ledger.total_bytes):
            break
    if kept is None:
        raise refusal or ScenarioError(f"{model} does not fit on {accelerator}")
    if kept.longest < LEAST_LENGTH:
        raise ScenarioError(
            f"{kept.described}: a request may have {kept.longest:,} tokens, and the questions are about "
            f"{LEAST_LENGTH:,} or more; take a larger accelerator"
        )
    return replace(kept, notes=tuple(_notes(kept, fp8)))


def sizes_of(subject: Subject) -> list[int]:
    """Tensor parallel sizes within a node that divide the model, ascending."""
    bare = build(Deployment, {"model": subject.model, "accelerator": subject.accelerator}, "ask")
    node = subject.accelerator.accelerators_per_node
    return [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= node and bare.divides(size)]


def _notes(subject: Subject, roomy: bool) -> list[str]:
    notes = []
    if subject.tensor_parallel_size > 1:
        roomy_too = " and weights in a third of memory" if roomy else ""
        notes.append(
            f"Tensor parallel size {subject.tensor_parallel_size}: the smallest with a KV pool of "
            f"{LEAST_KV_TOKENS:,} tokens{roomy_too}, or the largest of a node"
        )
    lender = subject.accelerator.efficiency.borrowed_from
    if lender is not None:
        notes.append(f"The simulation borrows the efficiencies of {subject.accelerator.name} from {lender}")
    return notes
