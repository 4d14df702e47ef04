"""What a replica does whose slots are always full: a closed form over any cost model."""

from bisect import bisect_left
from typing import NamedTuple

from llmsim.closed_form.iterations import decodes, prompts
from llmsim.cost import CostModel
from llmsim.deployment import Deployment, batch_defaults


class Saturation(NamedTuple):
    """What a replica does whose slots are always full."""

    prompt_s: float
    """Time of iterations that a prompt takes."""
    decode_step_s: float
    """Between two tokens of a sequence while nobody computes a prompt."""
    request_s: float
    """Time of iterations that a request takes: the reciprocal of the throughput."""
    prompt_share: float
    """Of that time, spent on prompts."""
    tpot_s: float
    """Time per output token: decode steps with others' prompts between them."""


def saturated(
    cost: CostModel, deployment: Deployment, prompt_tokens: int, output_tokens: int, sequences: int
) -> Saturation:
    """The throughput of a data-parallel rank with ``sequences`` sequences always decoding, and their TPOT.

    1/X = S/R + (n-1)*t(B)/B: R prompt tokens a second in full iterations, t(B) a decode step at the average context
    S + n/2, the first token being the prompt's; TPOT = t(B) / (1 - share of prompts). An upper bound: no arrival
    waits, no iteration is less than full. With pipeline stages each of as many lanes has its part of the sequences.
    """
    prompt_s = _prompt_s(cost, deployment, prompt_tokens)
    lanes = min(deployment.pipeline_parallel_size, sequences)
    batch = decodes(sequences // lanes, prompt_tokens + output_tokens // 2, deployment.model.sliding_window)
    decode_step_s = lanes * cost.step(batch).occupancy_s
    request_s = prompt_s + (output_tokens - 1) * decode_step_s / sequences
    share = prompt_s / request_s
    return Saturation(prompt_s, decode_step_s, request_s, share, decode_step_s / (1 - share) if share < 1 else 0.0)


def sequences_for(
    cost: CostModel, deployment: Deployment, prompt_tokens: int, output_tokens: int, rate_per_s: float, most: int
) -> int:
    """How many sequences, always decoding, serve ``rate_per_s`` requests a second; ``most`` where no fewer do.

    The inverse of ``saturated``: the slots that are taken at a load, queues aside.
    """

    def enough(sequences: int) -> bool:
        return rate_per_s * saturated(cost, deployment, prompt_tokens, output_tokens, sequences).request_s <= 1

    return bisect_left(range(1, most), True, key=enough) + 1


def _prompt_s(cost: CostModel, deployment: Deployment, tokens: int) -> float:
    """A prompt's part of full iterations: with others where several fit, in chunks where it does not fit in one."""
    budget = deployment.max_num_batched_tokens or batch_defaults(deployment.accelerator)[0]
    window = deployment.model.sliding_window
    if tokens <= budget:
        together = budget // tokens
        return cost.step(prompts(together, tokens, window=window)).occupancy_s / together
    return sum(
        cost.step(prompts(1, min(budget, tokens - start), start, window)).occupancy_s
        for start in range(0, tokens, budget)
    )
