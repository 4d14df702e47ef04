"""vLLM's first scheduler (V0, the default until 2025): prompts first, and while they are computed every decode waits.

Source: vllm/core/scheduler.py of vLLM 0.6 (``_schedule_default``, Apache-2.0), with preemption by recomputation.

``scheduler_delay_factor`` is ``_passed_delay`` there, which is asked before every prompt: each must itself have waited,
since it came to the engine, for longer than the factor times the latency of the last iteration of prompts, unless
nobody ran before this plan. That latency is measured from its plan to the next one. The product is rounded down to a
whole nanosecond; as waits are whole nanoseconds too, the same ones are longer than it.
"""

from dataclasses import replace
from math import floor
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from llmsim.deployment import batch_defaults
from llmsim.engine.clock import IterationClock
from llmsim.engine.plan import Plan, StoppedBy
from llmsim.engine.policy import Policy
from llmsim.engine.queues import ArrivalQueue, WaitingQueue
from llmsim.engine.state import EngineState
from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec
from llmsim.specification import specification


@specification
class VllmV0Scheduler:
    """vLLM V0: if a waiting prompt fits, the iteration is prefill only; otherwise decode only."""

    kind: Literal["vllm_v0"] = "vllm_v0"
    max_num_seqs: PositiveInt | None = None
    """Most requests running at once; absent: 256, the default of V0."""
    max_num_batched_tokens: PositiveInt | None = None
    """Most prompt tokens in one iteration; absent: the larger of 2048 and max_model_len, the default of V0."""
    watermark: float = Field(default=0.01, ge=0, lt=1)
    """Share of KV blocks that must stay free when a request is admitted."""
    scheduler_delay_factor: float = Field(default=0.0, ge=0)
    """While others run, a prompt waits longer than so many times what the last iteration of prompts took, so that more
    of them are computed together; 0: no such wait."""
    enable_chunked_prefill: ClassVar[bool] = False
    batches_in_flight: ClassVar[int] = 1
    reserves_kv: ClassVar[bool] = False

    def resolve(self, accelerator: AcceleratorSpec, max_model_len: int) -> "VllmV0Scheduler":
        """This scheduler with both batch sizes filled in.

        Raises:
            ScenarioError: when a prompt can be longer than an iteration may be.
        """
        seqs = self.max_num_seqs or min(256, batch_defaults(accelerator)[1])
        tokens = self.max_num_batched_tokens or max(2048, max_model_len)
        if tokens < max_model_len:
            raise ScenarioError(
                f"max_num_batched_tokens = {tokens} must be at least max_model_len = {max_model_len}: "
                "vllm_v0 computes prompts whole"
            )
        return replace(self, max_num_seqs=seqs, max_num_batched_tokens=tokens)

    def queue(self) -> WaitingQueue:
        """In order of arrival."""
        return ArrivalQueue()

    def start(self, state: EngineState) -> Policy:
        """The policy for one engine."""
        return VllmV0Policy(self, state)


class VllmV0Policy:
    """Prefill first; when blocks run out the latest request is preempted."""

    def __init__(self, limits: VllmV0Scheduler, state: EngineState) -> None:
        assert limits.max_num_seqs is not None
        assert limits.max_num_batched_tokens is not None
        self._state = state
        self._max_seqs = limits.max_num_seqs
        self._max_tokens = limits.max_num_batched_tokens
        self._spare = int(limits.watermark * state.kv.blocks)
        self._delay_factor = limits.scheduler_delay_factor
        self._hold_ns = -1
        """A prompt that has waited so long or less is held back while others run."""
        self._prompts_ns: dict[IterationClock, int] = {}
        """When the last iteration on a clock was planned, if it had prompts: it took until the next is."""

    def schedule(self, now_ns: int) -> Plan | None:
        """Plan the next iteration; None when there is nothing to do in it."""
        state = self._state
        plan = state.plan()
        if (planned_ns := self._prompts_ns.pop(plan.clock, None)) is not None:
            self._hold_ns = floor(self._delay_factor * (now_ns - planned_ns))
        plan.stopped_by = self._admit(plan, now_ns)
        if plan.prefills:
            if self._delay_factor:
                self._prompts_ns[plan.clock] = now_ns
            for sequence in state.running:
                if state.decodes_now(sequence):
                    state.delay(plan, sequence)
        else:
            self._make_room(plan)
        if not plan.prefills and not state.clock.count and not plan.preempted:
            return None
        state.close(plan)
        return plan

    def _admit(self, plan: Plan, now_ns: int) -> StoppedBy:
        """Admit from the head of the queue on; returns why it stopped. The head has waited longest."""
        state, budget = self._state, self._max_tokens
        hold_ns = self._hold_ns if state.running else -1
        while state.waiting:
            if len(state.running) >= self._max_seqs:
                return "slots"
            sequence = state.waiting.head()
            if now_ns - sequence.queued_ns <= hold_ns:
                plan.until_ns = sequence.queued_ns + hold_ns
                return "delay"
            hits, hits_free = state.kv.lookup(sequence)
            tokens = sequence.length - hits * state.block_size
            if tokens > budget:
                return "budget"
            needed = state.blocks_for(sequence.length) - hits * state.width + self._spare
            if needed + hits_free > state.kv.free:
                plan.awaited_blocks = needed
                return "kv"
            state.admit(plan, hits, tokens)
            budget -= tokens
        return "empty"

    def _make_room(self, plan: Plan) -> None:
        """Give every decode the block it needs; the latest requests lose theirs when there are not enough."""
        state = self._state
        while (due := state.clock.blocks_due()) > state.kv.free:
            state.preempt(plan, next(reversed(state.running)), 0)
            plan.stopped_by = "preempted"
        state.kv.take(due)
