"""vLLM's V1 scheduler, rule by rule, over the mechanics of ``EngineState``.

A schedule is a map from request to tokens: there is no prefill phase and no decode phase. First the running requests
get theirs, in order of admission; then, if nobody had to be preempted, waiting ones are admitted, strictly from the
head of the queue. The decodes on the iteration clock are scheduled as one number whenever the order among them cannot
matter.

Source of the rules: vllm/v1/core/sched/scheduler.py and async_scheduler.py of vLLM 0.33.0 (Apache-2.0), as recorded in
the cases that ``tests/conformance`` replays.
"""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from llmsim.deployment import batch_defaults
from llmsim.engine.clock import MANY
from llmsim.engine.plan import Plan, StoppedBy
from llmsim.engine.policy import Policy
from llmsim.engine.queues import ArrivalQueue, PriorityQueue, WaitingQueue
from llmsim.engine.sequence import Sequence
from llmsim.engine.state import EngineState
from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec
from llmsim.specification import specification


@specification
class VllmScheduler:
    """vLLM's V1 scheduler (version 0.33): continuous batching, chunked prefill, preemption by recomputation.

    A batch size that is absent takes vLLM's API-server default for the accelerator's memory.
    """

    kind: Literal["vllm"] = "vllm"
    max_num_seqs: PositiveInt | None = None
    """Most requests running at once."""
    max_num_batched_tokens: PositiveInt | None = None
    """Most tokens in one iteration."""
    enable_chunked_prefill: bool = True
    """Compute a long prompt in several iterations, together with decodes."""
    long_prefill_token_threshold: int = Field(default=0, ge=0)
    """Most prompt tokens of one request in one iteration; 0: no such limit."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    """Order of the waiting queue: as they come, or the smallest priority first."""
    watermark: float = Field(default=0.0, ge=0, lt=1)
    """Share of KV blocks that must stay free when a request is admitted beside running ones."""
    scheduler_reserve_full_isl: bool = True
    """Admit a request only when its whole prompt fits in the free blocks, not just its first chunk."""
    async_scheduling: bool = True
    """Schedule an iteration while the one before it runs."""
    reserves_kv: ClassVar[bool] = False

    @property
    def batches_in_flight(self) -> int:
        """Iterations that may be planned and not yet ended, on one pipeline stage."""
        return 2 if self.async_scheduling else 1

    def resolve(self, accelerator: AcceleratorSpec, max_model_len: int) -> "VllmScheduler":
        """This scheduler with both batch sizes filled in, as vLLM 0.33 does when its API server starts.

        Source: vLLM 0.33, the defaults of ``EngineArgs`` and the checks of ``SchedulerConfig``.

        Raises:
            ScenarioError: for batch sizes that vLLM refuses.
        """
        default_tokens, default_seqs = batch_defaults(accelerator)
        seqs = self.max_num_seqs or default_seqs
        tokens = self.max_num_batched_tokens
        if tokens is None:
            smallest = 0 if self.enable_chunked_prefill else max_model_len
            tokens = min(max(default_tokens, smallest), seqs * max_model_len)
        if self.max_num_seqs is None:
            seqs = min(seqs, tokens)
        if tokens < seqs:
            raise ScenarioError(f"max_num_batched_tokens = {tokens} must be at least max_num_seqs = {seqs}")
        if not self.enable_chunked_prefill and tokens < max_model_len:
            raise ScenarioError(
                f"max_num_batched_tokens = {tokens} must be at least max_model_len = {max_model_len} when "
                "enable_chunked_prefill is false"
            )
        return replace(self, max_num_seqs=seqs, max_num_batched_tokens=tokens)

    def queue(self) -> WaitingQueue:
        """The waiting queue, in the order of the policy."""
        return PriorityQueue() if self.policy == "priority" else ArrivalQueue()

    def start(self, state: EngineState) -> Policy:
        """The scheduler of one engine; the batch sizes must be resolved."""
        return VllmPolicy(self, state)


class VllmPolicy:
    """vLLM's scheduler of one engine."""

    __slots__ = (
        "_chunked",
        "_max_seqs",
        "_max_tokens",
        "_priority",
        "_reserve_prompt",
        "_state",
        "_threshold",
        "_watermark",
    )

    def __init__(self, limits: VllmScheduler, state: EngineState) -> None:
        assert limits.max_num_seqs is not None
        assert limits.max_num_batched_tokens is not None
        self._state = state
        self._max_seqs = limits.max_num_seqs
        self._max_tokens = limits.max_num_batched_tokens
        self._threshold = limits.long_prefill_token_threshold
        self._chunked = limits.enable_chunked_prefill
        self._reserve_prompt = limits.scheduler_reserve_full_isl
        self._priority = limits.policy == "priority"
        self._watermark = int(limits.watermark * (state.kv.blocks + 1))

    def schedule(self, now_ns: int) -> Plan | None:
        """Plan the next iteration; None when there is nothing to do in it."""
        state = self._state
        plan = state.plan()
        clock = state.clock
        threshold = self._threshold
        if threshold and len(state.running) + len(state.waiting) <= 1:
            threshold = 0
        budget = self._max_tokens
        if not state.partial and clock.count <= budget and (not self._priority or clock.blocks_due() <= state.kv.free):
            budget = self._schedule_decodes(plan, budget)
        else:
            budget = self._schedule_running(plan, budget, threshold)
        if plan.preempted:
            plan.stopped_by = "preempted"
        elif state.waiting:
            held_back = state.hold_back() if state.batches_in_flight > 2 else []
            plan.stopped_by = self._admit(plan, budget, threshold)
            for sequence in held_back:
                state.waiting.put_back(sequence)
        if clock.count == len(plan.delayed) and not plan.prefills and not plan.preempted:
            return None
        state.close(plan)
        return plan

    def _schedule_decodes(self, plan: Plan, budget: int) -> int:
        """Give every decode its token, when nobody else runs; returns what is left of the budget.

        One after another they take blocks, and whoever needs one that is not there has the last admitted preempted: in
        the end the fewest of the last are preempted that leave enough for the others, whatever the order among these.
        """
        state, clock, kv = self._state, self._state.clock, self._state.kv
        taken = 0
        while (due := clock.blocks_due() - taken) > kv.free:
            taken += kv.free
            kv.take(kv.free)  # before the victim's blocks are among the free: what is evicted depends on it
            state.preempt(plan, next(reversed(state.running)), 0)
        kv.take(due)
        return budget - clock.count

    def _schedule_running(self, plan: Plan, budget: int, threshold: int) -> int:
        """Give running requests their tokens; returns what is left of the budget.

        The order among them cannot matter while there are blocks for all: who was admitted after an unfinished prompt
        found budget left beside its chunk, which does not grow, so that only the last chunk is ever cut.
        """
        state, clock = self._state, self._state.clock
        left = budget - clock.count
        chunks = []
        for sequence in state.partial:
            wanted = sequence.length - sequence.computed
            if threshold:
                wanted = min(wanted, threshold)
            chunks.append((sequence, wanted))
        if left < 0:
            return self._walk(plan, budget, threshold)
        cut = []
        due = clock.blocks_due()
        for sequence, wanted in chunks:
            tokens = min(wanted, left)
            left -= tokens
            cut.append((sequence, tokens))
            due += state.blocks_for(sequence.computed + tokens) - state.blocks_for(sequence.computed)
        if due > state.kv.free:
            return self._walk(plan, budget, threshold)
        state.kv.take(clock.blocks_due())
        for sequence, tokens in cut:
            if tokens:
                state.extend(plan, sequence, tokens)
        return left

    def _walk(self, plan: Plan, budget: int, threshold: int) -> int:
        """Give running requests their tokens one by one, preempting when KV blocks run out."""
        state = self._state
        order = list(state.running)
        given: dict[Sequence, int] = {}
        index = 0
        while index < len(order) and budget > 0:
            sequence = order[index]
            tokens = min(self._wanted(sequence, threshold), budget)
            if tokens == 0:
                index += 1
                continue
            computed = state.computed(sequence)
            need = state.blocks_for(computed + tokens) - state.blocks_for(computed)
            while need > state.kv.free:
                victim, position = self._victim(order)
                del order[position]
                index -= position < index
                returned = given.pop(victim, 0)
                budget += returned
                state.preempt(plan, victim, returned)
                if victim is sequence:
                    break
            else:
                self._give(plan, sequence, tokens, need)
                given[sequence] = tokens
                budget -= tokens
                index += 1
        for sequence in order[index:]:
            if state.decodes_now(sequence):
                state.delay(plan, sequence)
        return budget

    def _wanted(self, sequence: Sequence, threshold: int) -> int:
        if sequence.on_clock:
            return 1 if self._state.decodes_now(sequence) else 0
        if sequence not in self._state.partial:
            return 0
        wanted = sequence.length - sequence.computed
        return min(wanted, threshold) if threshold else wanted

    def _victim(self, order: list[Sequence]) -> tuple[Sequence, int]:
        """Who is preempted next: the last admitted, or the least important, then latest, the first of several."""
        if not self._priority:
            return order[-1], len(order) - 1
        position = max(range(len(order)), key=lambda i: (order[i].priority, order[i].arrival_ns))
        return order[position], position

    def _give(self, plan: Plan, sequence: Sequence, tokens: int, need: int) -> None:
        if sequence.on_clock:
            self._state.kv.take(need)
        else:
            self._state.extend(plan, sequence, tokens)

    def _admit(self, plan: Plan, budget: int, threshold: int) -> StoppedBy:
        """Admit waiting requests from the head of the queue on; returns why it stopped."""
        state = self._state
        waiting, running, kv, size = state.waiting, state.running, state.kv, state.block_size
        of_prompt = state.groups.of_prompt
        while waiting:
            if budget <= 0:
                return "budget"
            if len(running) >= self._max_seqs:
                return "slots"
            sequence = waiting.head()
            if sequence.names:
                state.note_named_outputs(sequence)
            hits, hits_free = kv.lookup(sequence)
            found = hits * size
            length = sequence.length
            tokens = length - found
            if threshold and tokens > threshold:
                tokens = threshold
            if tokens > budget:
                if not self._chunked:
                    return "budget"
                tokens = budget
            target = length if self._reserve_prompt else found + tokens
            spare = self._watermark if running else 0
            needed = of_prompt(-(-target // size) - hits) + spare
            if needed + hits_free > kv.free:
                plan.awaited_blocks = needed
                # What it found may be reused meanwhile: then it may be the budget that it does not fit into.
                plan.repeats = self._chunked or not hits
                return "kv"
            if of_prompt(-(-length // size)) > kv.blocks:
                # The real scheduler would start it again and again, but its server refuses to start with such a pool.
                plan.awaited_blocks = MANY
                return "kv"
            state.admit(plan, hits, tokens)
            budget -= tokens
        return "empty"
