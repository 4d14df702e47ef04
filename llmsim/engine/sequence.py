"""One request inside an engine: the state that the scheduler, the clock and the KV pool keep of it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmsim.engine.clock import IterationClock
    from llmsim.engine.prefix import Block

NEVER = -1
"""A time or an iteration that has not come."""


class Sequence:
    """A request on its replica, which owns it. A sequence is a key by identity.

    While a sequence decodes it lives on the iteration clock: ``computed`` is then ``offset + iteration``, and the
    tokens it has emitted follow from the iterations since it joined. Off the clock both stand in the fields. What is
    true of most for most of their time stands in the class.
    """

    computed: int = 0
    """Tokens whose KV is scheduled or computed (off the clock)."""
    emitted: int = 0
    """Output tokens delivered (off the clock; on it: when it joined)."""
    preemptions: int = 0

    clock: "IterationClock | None" = None
    """The clock it decodes on or has decoded on last."""
    on_clock: bool = False
    offset: int = 0
    joined: int = 0
    """First iteration in which it decodes on the clock."""
    finishes: int = NEVER
    """Iteration that samples its last token."""
    leaves: int = NEVER
    """Last iteration it is planned in: a stop is seen late when batches are in flight."""

    running: bool = False
    rank: int = 0
    """Number of its last admission: the order of the running list."""
    queued_ns: int = NEVER
    first_scheduled_ns: int = NEVER
    first_token_ns: int = NEVER
    last_token_ns: int = NEVER
    """When it last emitted a token off the clock or joined it."""
    finish_ns: int = NEVER
    preempted_ns: int = NEVER
    """When it was preempted, until it emits again."""
    resumed_ns: int = NEVER
    max_itl_ns: int = NEVER
    cached_tokens: int = 0
    """Prefix-cache hit of its first admission."""
    recomputed_tokens: int = 0
    computed_before: int = 0
    """Most tokens that were computed when it was preempted."""
    blocks: "list[Block] | None" = None
    """Registered blocks it shares, first to last (prefix caching only)."""
    window_blocks: "list[Block] | None" = None
    """The same in layers with a sliding window, from the first position it has not left behind."""
    left: int = 0
    """Positions that it has left behind in layers with a sliding window (off the clock, or while ``window_blocks``)."""

    def __init__(
        self,
        row: int,
        prompt_tokens: int,
        limit_tokens: int,
        target: int,
        stops: bool,
        arrival_ns: int,
        priority: int = 0,
        shared_tokens: int = 0,
        names: tuple[int, ...] = (),
    ) -> None:
        self.row = row
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens
        """Prompt and output tokens at which it ends by length: min(prompt + max_tokens, max_model_len)."""
        self.target = target
        """Output tokens it will emit: known to the model, read by no scheduler."""
        self.stops = stops
        """Its last token is an end of sequence, which the engine sees only when it has it."""
        self.arrival_ns = arrival_ns
        self.priority = priority
        self.shared_tokens = shared_tokens
        """Leading tokens whose streams other requests name too: what prefix caching can share."""
        self.names = names
        """Rows whose outputs its prompt names."""

    @property
    def length(self) -> int:
        """Known tokens: prompt and delivered outputs (off the clock)."""
        return self.prompt_tokens + self.emitted
