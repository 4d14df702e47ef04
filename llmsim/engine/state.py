"""What happens to requests in an engine: admission, growth, preemption and the end. No policy, no SimPy.

A scheduler decides by calling these mechanics; each keeps the queue, the running list, the iteration clock and the KV
blocks in step with one another.
"""

from collections import deque

from llmsim.cost.base import Batch
from llmsim.engine.batches import mixed_batch
from llmsim.engine.clock import IterationClock
from llmsim.engine.kv import BlockGroups, KvCache
from llmsim.engine.plan import Plan
from llmsim.engine.queues import WaitingQueue
from llmsim.engine.sequence import NEVER, Sequence
from llmsim.units import TICK_BITS


class EngineState:
    """The requests of one engine, and the mechanics that move them."""

    __slots__ = (
        "_reserves",
        "admissions",
        "batches_in_flight",
        "block_size",
        "clock",
        "flights",
        "groups",
        "kv",
        "lanes",
        "named",
        "partial",
        "running",
        "waiting",
        "width",
        "window",
    )

    def __init__(
        self,
        kv: KvCache,
        waiting: WaitingQueue,
        groups: BlockGroups,
        *,
        window: int | None = None,
        batches_in_flight: int = 1,
        lanes: int = 1,
        reserves_kv: bool = False,
    ) -> None:
        self.kv = kv
        self.waiting = waiting
        self.groups = groups
        self.block_size = groups.size
        self.width = groups.width
        """KV blocks that tokens take each time they fill the last ones."""
        self.window = window
        self.batches_in_flight = batches_in_flight
        self._reserves = reserves_kv
        self.lanes = [IterationClock(groups, window, takes_blocks=not reserves_kv) for _ in range(lanes)]
        """One clock for each micro batch that can be on its way through the stages of a pipeline."""
        self.clock = self.lanes[0]
        """The clock of the decodes that can be planned now."""
        self.admissions = 0
        self.running: dict[Sequence, None] = {}
        """In order of admission."""
        self.partial: dict[Sequence, None] = {}
        """Running sequences that have prompt tokens left, in order of admission."""
        self.named: dict[int, Sequence] = {}
        """Running sequences whose outputs other prompts name, by row."""
        self.flights: deque[Plan] = deque()
        """Iterations that have been planned and have not ended, oldest first."""

    def plan(self) -> Plan:
        """An empty plan of the next iteration, for the largest batch of decodes that is not in flight."""
        if len(self.lanes) == 1:
            return Plan(self.clock, self.clock.iteration)
        flying = [flight.clock for flight in self.flights]
        self.clock = max((lane for lane in self.lanes if lane not in flying), key=lambda lane: lane.count)
        return Plan(self.clock, sum(lane.iteration for lane in self.lanes))

    def decodes_now(self, sequence: Sequence) -> bool:
        """Whether the sequence decodes in the iteration being planned."""
        return sequence.on_clock and sequence.clock is self.clock

    def computed(self, sequence: Sequence) -> int:
        """Tokens of a running sequence that are computed or scheduled, before the iteration being planned."""
        if sequence.on_clock and sequence.clock is not None:
            return sequence.offset + sequence.clock.iteration
        return sequence.computed

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.block_size) * self.width

    def blocks_at(self, sequence: Sequence, computed: int) -> int:
        """Blocks that a running sequence has taken with so many tokens computed or scheduled."""
        return self.blocks_for(sequence.limit_tokens if self._reserves else computed)

    def admit(self, plan: Plan, hits: int, tokens: int) -> None:
        """Move the head of the queue to the running list: ``hits`` blocks were found, ``tokens`` are computed."""
        sequence = self.waiting.take()
        found = hits * self.block_size
        self.kv.admit(sequence, hits, self.blocks_at(sequence, found + tokens) - hits * self.width)
        if not sequence.preemptions:
            sequence.cached_tokens = found
        sequence.computed = found
        if self.groups.window:
            sequence.left = self.groups.left(found)
        sequence.running = True
        sequence.rank = self.admissions
        self.admissions += 1
        self.running[sequence] = None
        self.partial[sequence] = None
        if sequence.shared_tokens > sequence.prompt_tokens:
            self.named[sequence.row] = sequence
        plan.admitted += ((sequence, found),)
        self._prefill(plan, sequence, tokens)

    def hold_back(self) -> list[Sequence]:
        """Take preempted requests out of the queue whose last token is still in flight; the first in order comes last.

        They cannot be resumed yet: what to compute is not known. Only with three iterations in flight is one planned
        between a preemption and the end of what was in flight.
        """
        unknown = {each for flight in self.flights for each in (*flight.late, *flight.sampled) if not each.running}
        held_back = [each for each in reversed(self.waiting.listed()) if each in unknown] if unknown else []
        for sequence in held_back:
            self.waiting.remove(sequence)
        return held_back

    def note_named_outputs(self, sequence: Sequence) -> None:
        """Register the blocks that running sequences have filled with outputs which this one's prompt names."""
        for row in sequence.names:
            if (author := self.named.get(row)) is not None:
                planned = 0 if self.decodes_now(author) or author.clock is None else 1
                iteration = (author.clock or self.clock).iteration - planned
                self.kv.register(author, self.registered(author, iteration), windows=False)

    def registered(self, sequence: Sequence, iteration: int) -> int:
        """Tokens of a running sequence that prefix caching can find once ``iteration`` is planned.

        Those are scheduled and known: with iterations in flight the last ones are not known yet.
        """
        if sequence in self.partial:
            return sequence.computed
        if iteration > sequence.leaves:
            in_flight = sum(
                flight.clock is sequence.clock and sequence.joined <= flight.iteration <= sequence.leaves
                for flight in self.flights
            )
            return sequence.offset + sequence.leaves + 1 - in_flight
        delivered = self._delivered(sequence.clock or self.clock, iteration)
        known = sequence.length + max(0, delivered - sequence.joined)
        return min(sequence.offset + iteration + 1, known)

    def extend(self, plan: Plan, sequence: Sequence, tokens: int) -> None:
        """Compute ``tokens`` further prompt tokens of a running sequence; the blocks they need must be free."""
        computed = sequence.computed
        self.kv.take(self.blocks_at(sequence, computed + tokens) - self.blocks_at(sequence, computed))
        self._prefill(plan, sequence, tokens)

    def preempt(self, plan: Plan, sequence: Sequence, scheduled_tokens: int) -> None:
        """Take a running sequence's blocks and put it back in the queue; the tokens it has emitted stay.

        ``scheduled_tokens`` are those that this plan had given it: it is not computed after all.
        """
        if sequence in self.partial:
            plan.prefills = tuple(entry for entry in plan.prefills if entry[0] is not sequence)
        computed = self._give_up_blocks(sequence, scheduled_tokens)
        sequence.computed_before = max(sequence.computed_before, computed - scheduled_tokens)
        sequence.computed = 0
        sequence.leaves = NEVER
        sequence.preemptions += 1
        plan.preempted += (sequence,)
        self.waiting.put_back(sequence)

    def abort(self, sequence: Sequence) -> None:
        """End a waiting or running sequence before its time. What is in flight goes on, but it gets nothing of it."""
        if sequence.running:
            self._give_up_blocks(sequence, 0)
        else:
            self.waiting.remove(sequence)
        for flight in self.flights:
            flight.forget(sequence)

    def delay(self, plan: Plan, sequence: Sequence) -> None:
        """Leave a decode out of this plan; it goes on in the next one."""
        iteration = self.clock.iteration
        finishes, leaves = sequence.finishes, sequence.leaves
        context, _ = self._leave_clock(sequence)
        sequence.computed = context
        if finishes < iteration:
            sequence.offset, sequence.leaves = context - iteration, iteration - 1
            return
        plan.delayed += (sequence,)
        sequence.finishes, sequence.leaves = finishes + 1, leaves + 1
        self.clock.join(sequence, context, iteration + 1)

    def close(self, plan: Plan) -> None:
        """Complete a plan: sum up its batch, count the iteration, let finished prefills join the clock."""
        clock, kv = self.clock, self.kv
        plan.running, plan.waiting, plan.kv_blocks = len(self.running), len(self.waiting), kv.blocks - kv.free
        if plan.prefills or plan.delayed or clock.delayed:
            self._sum_up_mixed(plan)
        else:
            plan.decodes = decodes = clock.count
            context = clock.offsets + decodes * (plan.iteration + 1)
            window = context if self.window is None else clock.window_context()
            plan.batch = Batch(0, 0, 0, 0, decodes, context, decodes, 0, 0, window)
        gone = clock.advance()
        if self.groups.window:
            self._leave_behind(plan)
        for sequence in plan.sampled:
            self._join_clock(plan, sequence)
        if gone or clock.stopping:
            self.depart(plan, gone)

    def leap(self, plan: Plan, iterations: int) -> tuple[list[Sequence], int]:
        """Plan and count so many iterations that repeat a closed plan.

        Returns the sequences for which the last of them was the last, now off the clock, and the blocks held in it.
        """
        clock, kv = plan.clock, self.kv
        if self.groups.window:
            # They go to the end of what is reused, new ones come from its front: the order among them does not matter.
            kv.give_back(clock.left_over(iterations - 1))
        kv.take(clock.blocks_over(iterations))
        held = kv.blocks - kv.free
        gone = clock.leap(iterations)
        if self.groups.window:
            self._leave_behind(plan)
        return gone, held

    def _leave_behind(self, plan: Plan) -> None:
        """Give blocks of windowed layers back that nobody in the plan, which is counted, attends to any more."""
        clock = plan.clock
        again = sum(self._just_left(each) for each in plan.delayed)
        self.kv.give_back(clock.left_blocks() - self.groups.window * again)
        for sequence in clock.take_past_keeping():
            self._leave(sequence)
        for sequence, _ in plan.prefills:
            if sequence in self.partial:
                self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """Give back what the next token of a sequence does not attend to."""
        left = self.groups.left(self.computed(sequence))
        if left > sequence.left:
            self.kv.leave(sequence, left)

    def _just_left(self, delayed: Sequence) -> int:
        """Positions that a delayed decode leaves behind when its next token is due: it has done so before."""
        if delayed.window_blocks:
            return 0
        context = self.computed(delayed)
        return self.groups.left(context) - self.groups.left(context - 1)

    def depart(self, plan: Plan, gone: list[Sequence]) -> None:
        """Note on the plan of the last counted iteration who samples a last token in it, and who only seems to."""
        if gone:
            ending = tuple([sequence for sequence in gone if sequence.finishes == plan.iteration])
            plan.finishing += ending
            plan.wasted = len(gone) - len(ending)
        if stopping := plan.clock.stopping.pop(plan.iteration, None):
            plan.finishing += tuple(stopping)

    def finish(self, sequence: Sequence) -> None:
        """End a running sequence whose last token has been delivered."""
        clock = sequence.clock or self.clock
        if sequence.on_clock:
            clock.remove(sequence)
        self._stop_running(sequence)
        computed = sequence.offset + min(sequence.leaves, clock.iteration - 1) + 1
        self._release(sequence, computed, 0, sequence.prompt_tokens + sequence.target - 1)

    def settle(self, sequence: Sequence) -> None:
        """Bring what a sequence has emitted on the clock into the sequence."""
        clock = sequence.clock
        if clock is None:
            return
        last = min(self._delivered(clock, clock.iteration), sequence.leaves + 1)
        if last > sequence.joined:
            sequence.emitted += last - sequence.joined
            sequence.last_token_ns = clock.ended_ticks >> TICK_BITS
            sequence.max_itl_ns = max(sequence.max_itl_ns, clock.longest_gap_ns(sequence))

    def _delivered(self, clock: IterationClock, none_in_flight: int) -> int:
        """The first iteration of a clock whose tokens have not been delivered."""
        return next((flight.iteration for flight in self.flights if flight.clock is clock), none_in_flight)

    def _give_up_blocks(self, sequence: Sequence, scheduled_tokens: int) -> int:
        """Stop a running sequence before its end; returns its tokens that were computed or scheduled.

        ``scheduled_tokens`` are those of the plan being made.
        """
        if sequence in self.partial:
            computed, in_flight = sequence.computed, 0
            del self.partial[sequence]
        else:
            context, in_flight = self._leave_clock(sequence)
            computed = context + scheduled_tokens
        self._release(sequence, computed, scheduled_tokens, computed - in_flight)
        self._stop_running(sequence)
        return computed

    def _release(self, sequence: Sequence, computed: int, scheduled_tokens: int, known: int) -> None:
        """Take back the blocks of a sequence with ``computed`` tokens, the last ``scheduled_tokens`` in this plan."""
        positions = -(-(sequence.limit_tokens if self._reserves else computed) // self.block_size)
        if self.groups.window and sequence.joined <= sequence.leaves and not sequence.window_blocks:
            sequence.left = self._left(min(computed - scheduled_tokens, sequence.offset + sequence.leaves), known)
        self.kv.release(sequence, positions, known)

    def _left(self, computed: int, known: int) -> int:
        """Positions that a decode has left behind, less those it left only for tokens that nobody gets.

        These blocks are still among the free, and who continues with the ``known`` tokens finds them there.
        """
        left = self.groups.left(computed)
        back = left - self.groups.left(known - 1)
        if back <= 0 or back * self.groups.window > self.kv.free:
            return left
        self.kv.take(back * self.groups.window)
        return left - back

    def _stop_running(self, sequence: Sequence) -> None:
        del self.running[sequence]
        self.named.pop(sequence.row, None)
        sequence.running = False

    def _prefill(self, plan: Plan, sequence: Sequence, tokens: int) -> None:
        again = sequence.computed_before - sequence.computed
        if again > 0:
            sequence.recomputed_tokens += min(again, tokens)
        sequence.computed += tokens
        plan.prefills += ((sequence, tokens),)
        if sequence.shared_tokens:
            self.kv.register(sequence, sequence.computed)

    def _join_clock(self, plan: Plan, sequence: Sequence) -> None:
        """After its prefill a sequence decodes from the next iteration on, unless this token is its last."""
        iteration, context = plan.iteration, sequence.computed
        sequence.finishes = finishes = iteration + sequence.target - sequence.emitted - 1
        last = iteration + 1 + sequence.limit_tokens - 2 - context
        seen_late = self.batches_in_flight // len(self.lanes) - 1 if sequence.stops else 0
        sequence.leaves = leaves = min(finishes + seen_late, last)
        if leaves > iteration:
            if self.groups.window:
                self._leave(sequence)
            self.clock.join(sequence, context, iteration + 1)
        else:
            sequence.offset, sequence.joined, sequence.clock = context - iteration - 1, iteration + 1, self.clock

    def _leave_clock(self, sequence: Sequence) -> tuple[int, int]:
        """Take a sequence off the clock for good or for an iteration.

        Returns its computed tokens, and how many of its decodes are in flight: their tokens are delivered late.
        """
        clock = sequence.clock or self.clock
        end = min(clock.iteration, sequence.leaves + 1)
        if sequence.on_clock:
            clock.remove(sequence)
        self.settle(sequence)
        in_flight = 0
        for flight in self.flights:
            last = min(end - 1, sequence.finishes)
            if flight.clock is clock and sequence.joined <= flight.iteration <= last:
                flight.late += (sequence,)
                in_flight += 1
            if sequence in flight.finishing:
                flight.finishing = tuple(each for each in flight.finishing if each is not sequence)
        return sequence.offset + end, in_flight

    def _sum_up_mixed(self, plan: Plan) -> None:
        """The sum of what each computes, where not everyone decodes.

        Prompts that are complete with it sample, and are partial no longer.
        """
        clock = self.clock
        if delayed := clock.delayed:
            plan.rejoined = tuple(s for s in delayed if self.decodes_now(s) and s.joined == plan.iteration)
        clock.delayed = plan.delayed
        sampled = []
        for sequence, _ in plan.prefills:
            if sequence.computed == sequence.prompt_tokens + sequence.emitted:
                sampled.append(sequence)
                del self.partial[sequence]
        plan.sampled = tuple(sampled)
        plan.decodes = clock.count - len(plan.delayed)
        plan.batch = mixed_batch(plan, self.window)
