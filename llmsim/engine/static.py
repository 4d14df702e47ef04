"""Static batching: a batch of requests runs until the last of them has ended, and newcomers wait.

Prompts are padded to the longest of the batch, and a request that has ended leaves its place empty but computed. KV is
reserved for prompt and max_tokens. What servers did before iteration-level scheduling; see ``llmsim.engine.orca``.
"""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import PositiveInt

from llmsim.cost.base import Batch
from llmsim.deployment import batch_defaults
from llmsim.engine.plan import Plan, StoppedBy
from llmsim.engine.policy import Policy
from llmsim.engine.queues import ArrivalQueue, WaitingQueue
from llmsim.engine.state import EngineState
from llmsim.hardware import AcceleratorSpec
from llmsim.specification import specification


@specification
class StaticScheduler:
    """Batches that are formed when the one before has ended, padded to their longest request."""

    kind: Literal["static"] = "static"
    max_num_seqs: PositiveInt | None = None
    """Most requests in a batch; absent: vLLM's default for the accelerator's memory."""
    max_num_batched_tokens: ClassVar[int | None] = None
    enable_chunked_prefill: ClassVar[bool] = False
    batches_in_flight: ClassVar[int] = 1
    reserves_kv: ClassVar[bool] = True

    def resolve(self, accelerator: AcceleratorSpec, max_model_len: int) -> "StaticScheduler":
        """This scheduler with its batch size filled in."""
        return replace(self, max_num_seqs=self.max_num_seqs or batch_defaults(accelerator)[1])

    def queue(self) -> WaitingQueue:
        """In order of arrival."""
        return ArrivalQueue()

    def start(self, state: EngineState) -> Policy:
        """The policy for one engine."""
        assert self.max_num_seqs is not None
        return StaticPolicy(self.max_num_seqs, state)


class StaticPolicy:
    """Admits only when nobody runs; every iteration computes the whole padded batch."""

    def __init__(self, max_num_seqs: int, state: EngineState) -> None:
        self._max_seqs = max_num_seqs
        self._state = state
        self._size = 0
        """Requests the batch was formed of."""
        self._longest = 0
        """Tokens of the longest prompt."""
        self._formed = 0
        """Iteration that computed the prompts."""

    def schedule(self, now_ns: int) -> Plan | None:
        """Plan the next iteration; None when there is nothing to do in it."""
        state = self._state
        plan = state.plan()
        if state.running:
            plan.stopped_by = "slots" if state.waiting else "empty"
        else:
            plan.stopped_by = self._form_batch(plan)
        if not plan.prefills and not state.clock.count:
            return None
        state.close(plan)
        plan.batch = self._padded(plan)
        return plan

    def _form_batch(self, plan: Plan) -> StoppedBy:
        state = self._state
        stopped_by: StoppedBy = "empty"
        while state.waiting and stopped_by == "empty":
            sequence = state.waiting.head()
            if len(state.running) >= self._max_seqs:
                stopped_by = "slots"
            elif state.blocks_at(sequence, 0) > state.kv.free:
                stopped_by = "kv"
            else:
                state.admit(plan, 0, sequence.length)
        self._size = len(state.running)
        self._longest = max((sequence.length for sequence in state.running), default=0)
        self._formed = plan.iteration
        return stopped_by

    def _padded(self, plan: Plan) -> Batch:
        """The batch as it is computed: every place of it, each as long as the longest."""
        size, length = self._size, self._longest + plan.iteration - self._formed
        if plan.prefills:
            tokens = size * length
            pairs = size * (length * (length + 1) // 2)
            return Batch(size, tokens, pairs, tokens, 0, 0, size, pairs, tokens, 0)
        attended = size * length
        window = self._state.window
        cut = attended if window is None else size * min(length, window)
        plan.repeats = window is None
        return Batch(0, 0, 0, 0, size, attended, size, 0, 0, cut)
