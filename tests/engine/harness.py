"""One engine driven by a plain loop: no SimPy, no recorder, no leaps.

A second, straightforward reading of what a replica does: plan while an iteration may start, wait for the oldest, hand
out its tokens. ``check`` is called after everything that touches KV memory.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from llmsim.cost.base import Batch
from llmsim.engine.kv import BlockGroups, BlockPool
from llmsim.engine.pace import TICKS_PER_NS, Pace
from llmsim.engine.plan import Plan
from llmsim.engine.prefix import PrefixCache
from llmsim.engine.prompt_keys import PromptKeys
from llmsim.engine.sequence import Sequence
from llmsim.engine.state import EngineState
from llmsim.scenario import Pool
from llmsim.units import to_ns
from llmsim.workload import RequestTable


@dataclass
class Times:
    """What became of a request, in nanoseconds; -1 for what never came."""

    first_scheduled: int = -1
    first_token: int = -1
    finish: int = -1


class Harness:
    """The engine of a pool and the requests of a table without successors; those too long are left out."""

    def __init__(self, pool: Pool, table: RequestTable, check: Callable[["Harness"], None]) -> None:
        deployment = pool.deployment()
        ledger = deployment.ledger()
        limits = pool.engine.scheduler.resolve(pool.accelerator, ledger.max_model_len)
        keys = PromptKeys(table, pool.engine.block_size) if pool.engine.enable_prefix_caching else None
        blocks = ledger.num_gpu_blocks - 1
        groups = BlockGroups.of(deployment, ledger.max_model_len, reserves_kv=limits.reserves_kv)
        self.state = EngineState(
            PrefixCache(blocks, keys, groups) if keys else BlockPool(blocks, groups),
            limits.queue(),
            groups,
            window=deployment.model.sliding_window if deployment.model.sliding_window_layers else None,
            batches_in_flight=limits.batches_in_flight,
            reserves_kv=limits.reserves_kv,
        )
        self.policy = limits.start(self.state)
        self.cost = pool.cost.start(deployment)
        self.pace = Pace(self.cost, windowed=self.state.window is not None)
        self.check = check
        fits = [row for row in range(len(table)) if table.prompt_tokens[row] < ledger.max_model_len]
        self.to_come = deque(a_request_of(table, row, ledger.max_model_len, keys) for row in fits)
        self.times = {row: Times() for row in fits}
        self.free_ticks = 0

    def run(self) -> dict[int, Times]:
        """Serve everybody, or until nobody can be served any more."""
        now = 0
        while True:
            self.plan(now)
            flights = self.state.flights
            if flights:
                now = flights[0].end_ns
                self.land(flights.popleft())
            elif self.to_come:
                now = self.to_come[0].arrival_ns + to_ns(self.cost.request_s)
            else:
                return self.times
            while self.to_come and self.to_come[0].arrival_ns + to_ns(self.cost.request_s) <= now:
                sequence = self.to_come.popleft()
                sequence.queued_ns = sequence.arrival_ns + to_ns(self.cost.request_s)
                self.state.waiting.add(sequence)

    def plan(self, now: int) -> None:
        """Plan iterations until enough are in flight."""
        state = self.state
        while len(state.flights) < state.batches_in_flight:
            plan = self.policy.schedule(now)
            self.check(self)
            if plan is None:
                return
            begin = max(now * TICKS_PER_NS, self.free_ticks)
            self.free_ticks = begin + self.ticks(plan.batch)
            plan.takes_place(begin, self.free_ticks)
            for sequence, _ in plan.admitted:
                if self.times[sequence.row].first_scheduled < 0:
                    self.times[sequence.row].first_scheduled = now
            state.flights.append(plan)

    def ticks(self, batch: Batch) -> int:
        """How long an iteration takes."""
        context, window = batch.decode_context_tokens, batch.decode_window_tokens
        if batch.prefill_sequences:
            return self.pace.step(batch)[1]
        if batch.decode_sequences:
            return self.pace.decodes(batch.decode_sequences, context, window).latency.at(context, window)
        return 0

    def land(self, plan: Plan) -> None:
        """Hand out an iteration's tokens, and let those go who have their last one."""
        state = self.state
        emitting = [*plan.late, *plan.sampled, *plan.finishing]
        assert len(emitting) == len(set(emitting)), "one iteration emits one token of a request"
        for sequence in (*plan.late, *plan.sampled):
            sequence.emitted += 1
        for sequence in plan.finishing:
            sequence.emitted = sequence.target
        for sequence in sorted(emitting, key=lambda each: each.rank):
            times = self.times[sequence.row]
            if times.first_token < 0:
                times.first_token = plan.end_ns
            if sequence.emitted == sequence.target:
                times.finish = plan.end_ns
                if sequence.running:
                    state.finish(sequence)
                    self.check(self)
                else:
                    state.waiting.remove(sequence)

    def held_blocks(self) -> int:
        """Blocks that running requests hold, counted request by request; shared ones once."""
        state, groups, shared, private = self.state, self.state.groups, set(), 0
        for sequence in state.running:
            computed = self.computed(sequence)
            positions = state.blocks_at(sequence, computed) // state.width
            seen = positions - sequence.left
            if sequence.joined <= sequence.leaves and not sequence.window_blocks:
                last = min(computed, sequence.offset + sequence.leaves)
                seen = positions - max(0, last - groups.window_tokens + 1) // groups.size
            blocks, near = sequence.blocks or [], sequence.window_blocks or []
            shared.update((block, groups.full) for block in blocks)
            shared.update((block, groups.window) for block in near)
            private += groups.full * (positions - len(blocks)) + groups.window * (seen - len(near))
        return private + sum(blocks for _, blocks in shared)

    def computed(self, sequence: Sequence) -> int:
        """Tokens of a running request whose KV is computed or scheduled."""
        if sequence in self.state.partial:
            return sequence.computed
        return sequence.offset + min(sequence.leaves + 1, self.state.clock.iteration)


def a_request_of(table: RequestTable, row: int, max_model_len: int, keys: PromptKeys | None) -> Sequence:
    """A row of a table as the engine sees it."""
    prompt, output, own = (int(getattr(table, name)[row]) for name in ("prompt_tokens", "output_tokens", "max_tokens"))
    limit = max_model_len - prompt if own < 0 else min(own, max_model_len - prompt)
    return Sequence(
        row=row,
        prompt_tokens=prompt,
        limit_tokens=prompt + limit,
        target=min(output, limit),
        stops=output <= limit and output != own,
        arrival_ns=int(table.arrival_ns[row]),
        priority=int(table.priority[row]),
        shared_tokens=keys.shared_tokens(row) if keys else 0,
        names=tuple(keys.outputs_named(row)) if keys else (),
    )
