"""Orca's iteration-level scheduling: requests join and leave between iterations; KV is reserved for all they may need.

The step from static batching to what came later: no request waits for the slowest of a batch, but memory is held for
the longest answer a request could give. Source: Yu et al., "Orca: A Distributed Serving System for Transformer-Based
Generative Models", OSDI 2022, sections 3.1 and 4.2.
"""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import PositiveInt

from llmsim.deployment import batch_defaults
from llmsim.engine.plan import Plan, StoppedBy
from llmsim.engine.policy import Policy
from llmsim.engine.queues import ArrivalQueue, WaitingQueue
from llmsim.engine.state import EngineState
from llmsim.hardware import AcceleratorSpec
from llmsim.specification import specification


@specification
class OrcaScheduler:
    """Iteration-level scheduling, first come, first served, with whole prompts and reserved KV."""

    kind: Literal["orca"] = "orca"
    max_num_seqs: PositiveInt | None = None
    """Most requests running at once; absent: vLLM's default for the accelerator's memory."""
    max_num_batched_tokens: ClassVar[int | None] = None
    enable_chunked_prefill: ClassVar[bool] = False
    batches_in_flight: ClassVar[int] = 1
    reserves_kv: ClassVar[bool] = True

    def resolve(self, accelerator: AcceleratorSpec, max_model_len: int) -> "OrcaScheduler":
        """This scheduler with its batch size filled in."""
        return replace(self, max_num_seqs=self.max_num_seqs or batch_defaults(accelerator)[1])

    def queue(self) -> WaitingQueue:
        """In order of arrival."""
        return ArrivalQueue()

    def start(self, state: EngineState) -> Policy:
        """The policy for one engine."""
        assert self.max_num_seqs is not None
        return OrcaPolicy(self.max_num_seqs, state)


class OrcaPolicy:
    """All running requests decode; then the queue is admitted from its head as far as slots and blocks go."""

    def __init__(self, max_num_seqs: int, state: EngineState) -> None:
        self._max_seqs = max_num_seqs
        self._state = state

    def schedule(self, now_ns: int) -> Plan | None:
        """Plan the next iteration; None when there is nothing to do in it."""
        plan = self._state.plan()
        plan.stopped_by = self._admit(plan)
        if not self._state.clock.count and not plan.prefills:
            return None
        self._state.close(plan)
        return plan

    def _admit(self, plan: Plan) -> StoppedBy:
        state = self._state
        while state.waiting:
            if len(state.running) >= self._max_seqs:
                return "slots"
            sequence = state.waiting.head()
            hits, hits_free = state.kv.lookup(sequence)
            if state.blocks_at(sequence, 0) - hits * state.width + hits_free > state.kv.free:
                return "kv"
            state.admit(plan, hits, sequence.length - hits * state.block_size)
        return "empty"
