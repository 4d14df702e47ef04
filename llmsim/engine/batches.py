"""What an iteration computes, as the sums that a cost model asks for."""

from llmsim.cost.base import Batch
from llmsim.engine.plan import Plan


def mixed_batch(plan: Plan, window: int | None) -> Batch:
    """The batch of a plan with prompts, or that leaves decodes out, before its iteration is counted."""
    clock = plan.clock
    tokens = pairs = context = window_pairs = window_tokens = 0
    for sequence, new in plan.prefills:
        full = sequence.computed
        prefix = full - new
        tokens += new
        context += full
        pairs += (full * (full + 1) - prefix * (prefix + 1)) // 2
        if window is not None:
            window_pairs += _window_pairs(prefix, full, window)
            window_tokens += min(prefix, window - 1) + new
    decode_context, decode_window = clock.context(), clock.window_context()
    for sequence in plan.delayed:
        later = sequence.offset + plan.iteration + 1
        decode_context -= later
        decode_window -= later if window is None else min(later, window)
    return Batch(
        len(plan.prefills),
        tokens,
        pairs,
        context,
        plan.decodes,
        decode_context,
        plan.decodes + len(plan.sampled),
        pairs if window is None else window_pairs,
        context if window is None else window_tokens,
        decode_window,
    )


def _window_pairs(prefix: int, full: int, window: int) -> int:
    """Query-key pairs of new positions prefix .. full - 1 when position p attends to min(p + 1, window) keys."""
    turn = max(prefix, min(full, window))
    growing = (turn * (turn + 1) - prefix * (prefix + 1)) // 2
    return growing + (full - turn) * window
