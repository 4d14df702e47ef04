"""What a scheduler is: a specification that a user writes, and the policy it starts for one engine.

A new scheduler is one file with both, its name in the union of ``llmsim.engine.settings``, and a test.
"""

from typing import Protocol, Self

from llmsim.engine.plan import Plan
from llmsim.engine.queues import WaitingQueue
from llmsim.engine.state import EngineState
from llmsim.hardware import AcceleratorSpec


class Policy(Protocol):
    """Decides iteration after iteration, by calling the mechanics of its ``EngineState``."""

    def schedule(self, now_ns: int) -> Plan | None:
        """Plan the next iteration, at ``now_ns``; None when there is nothing to do in it.

        A plan that repeats the last one exactly, while nobody arrives, ends or runs out of blocks, may be leaped over.
        With pipeline lanes it repeats the last one of its lane, and what happens to other lanes does not matter to it
        while nobody waits and no prompt is unfinished.
        One that time alone would change says so in ``until_ns``. After None the policy is asked again when a request
        arrives or is aborted or an iteration in flight ends, at no other time: let requests wait for a set time only
        beside an iteration.
        """
        ...


class Scheduler(Protocol):
    """A scheduler as a user specifies it. From Python any object with these can be an engine's scheduler."""

    @property
    def max_num_seqs(self) -> int | None:
        """Most requests running at once; None: a default that ``resolve`` fills in."""
        ...

    @property
    def max_num_batched_tokens(self) -> int | None:
        """Most tokens in one iteration, which also sizes the memory of activations; None: as above."""
        ...

    @property
    def enable_chunked_prefill(self) -> bool:
        """Whether a prompt may be computed in several iterations."""
        ...

    @property
    def batches_in_flight(self) -> int:
        """Iterations that may be planned and not yet ended: 1, or 2 when scheduling is asynchronous."""
        ...

    @property
    def reserves_kv(self) -> bool:
        """Whether a request gets KV blocks for all it may ever need when it is admitted."""
        ...

    def resolve(self, accelerator: AcceleratorSpec, max_model_len: int) -> Self:
        """The same with every default filled in.

        Raises:
            ScenarioError: when the limits contradict one another.
        """
        ...

    def queue(self) -> WaitingQueue:
        """An empty waiting queue, in the order of the policy."""
        ...

    def start(self, state: EngineState) -> Policy:
        """The policy for one engine."""
        ...
