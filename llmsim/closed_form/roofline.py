"""Where prompts turn from bound by memory to bound by compute, and where attention overtakes the matrices."""

from collections.abc import Callable

from llmsim.closed_form.iterations import prompts, spent
from llmsim.cost import AnalyticCost, CostModel
from llmsim.deployment import Deployment

_LONGEST = 2**24
"""Prompt tokens up to which knees are looked for."""


def ridge_flop_per_byte(deployment: Deployment) -> float:
    """FLOPs for each byte read from which on an operator is bound by compute: peak over bandwidth (Williams, Waterman
    and Patterson, "Roofline", Communications of the ACM 52, 2009)."""
    return deployment.peak_flop_per_s / deployment.accelerator.hbm_bandwidth_bytes_per_s


def knee_tokens(cost: CostModel) -> int | None:
    """The shortest prompt whose prefill is bound by compute; None where none is.

    ``cost`` must give the time of an iteration to one resource, as ``EnvelopeCost`` and the ideal model do.
    """
    return _first(lambda tokens: spent(cost, prompts(1, tokens)).compute_s > 0)


def attention_share(deployment: Deployment, prompt_tokens: int) -> float:
    """Attention's share of the FLOPs of a prompt's prefill; the LM head and all other products are the rest.

    Causal attention of S tokens has S * (S+1) / 2 pairs of query and key, so that its FLOPs grow with the square of S
    and overtake those of the matrices, which grow with S.
    """
    cost = AnalyticCost(ideal=True).start(deployment)
    batch = prompts(1, prompt_tokens, window=deployment.model.sliding_window)
    without = batch._replace(prefill_pairs=0, prefill_window_pairs=0)
    return 1 - spent(cost, without).flop / spent(cost, batch).flop


def attention_even_tokens(deployment: Deployment) -> int | None:
    """The shortest prompt whose attention has as many FLOPs as all matrices; None where none has.

    About N / (L * d) for N parameters outside the embeddings and L layers of full attention, d = heads * head_dim.
    """
    return _first(lambda tokens: attention_share(deployment, tokens) >= 0.5)


def _first(holds: Callable[[int], bool]) -> int | None:
    """The smallest number of tokens for which something holds that then holds for all larger ones."""
    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
        if high > _LONGEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
