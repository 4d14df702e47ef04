"""A scenario in Python with policies of its own: ``mypy`` accepts it, and ``tests/test_extending.py`` runs it."""

from dataclasses import dataclass, field

import numpy as np

from llmsim import Scenario
from llmsim.cluster.router import Chooser, ReplicaView
from llmsim.cost import CostModel, LinearCost
from llmsim.deployment import Deployment
from llmsim.scenario import Pool
from llmsim.workload import RequestTable

REQUESTS = 40


class AtRandom:
    """Any replica, all equally likely."""

    def start(self, rng: np.random.Generator) -> Chooser:
        """What chooses during one run."""
        return Dice(rng)


@dataclass
class Dice:
    """Throws for each request."""

    rng: np.random.Generator

    def choose(self, session: int, replicas: list[ReplicaView]) -> int:
        """The index of the replica that serves the next request."""
        return int(self.rng.integers(len(replicas)))


class Steady:
    """A request every tenth of a second."""

    def generate(self, seed: int) -> RequestTable:
        """The requests, which no seed changes."""
        return RequestTable.build(arrival_s=np.arange(REQUESTS) / 10, prompt_tokens=100, output_tokens=10)


@dataclass(frozen=True)
class SlowedDown:
    """Twenty milliseconds an iteration, whatever the hardware."""

    cost: LinearCost = field(default_factory=lambda: LinearCost(base_s=0.02))

    def start(self, deployment: Deployment) -> CostModel:
        """The cost model of one engine."""
        return self.cost.start(deployment)


def own_scenario() -> Scenario:
    """Names for what the catalogue knows, objects for the rest."""
    return Scenario(
        name="policies of one's own",
        model="llama-3.1-8b",
        router=AtRandom(),
        pools=[Pool(name="chat", accelerator="h100-sxm", replicas=2, cost=SlowedDown())],
        workload=Steady(),
    )
