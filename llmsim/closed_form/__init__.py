"""Closed forms: what can be worked out without a run, on the specifications that a run takes.

Above the cost models, whose counts of work it takes, and below those who explain: ``explain``, studies and questions.

- ``envelope``: iteration times by two shares of the data sheet;
- ``iterations``: the iterations that closed forms ask a cost model about;
- ``roofline``: where prompts turn compute-bound, and where attention takes over;
- ``requests``: one request, two that race, and a conversation that sends its history again;
- ``memory``: KV blocks of paged, reserved and shared sequences;
- ``queues``: waits, users, and spare capacity by queueing theory;
- ``saturation``: throughput when every slot is taken;
- ``fleet``: GPUs and money for a rate;
- ``lines``: a worked number as one shows it.
"""

from llmsim.closed_form.envelope import Envelope, EnvelopeCost
from llmsim.closed_form.fleet import FleetEstimate, fleet
from llmsim.closed_form.iterations import Spent, decodes, prompts, spent, together
from llmsim.closed_form.lines import Line
from llmsim.closed_form.memory import BeamBlocks, beam_blocks, blocks_of, empty_share, kv_of_token, sequences_in_pool
from llmsim.closed_form.queues import (
    in_flight,
    interactive_users,
    mean_wait_s,
    square_root_staffing,
)
from llmsim.closed_form.requests import (
    Conversation,
    conversation,
    crossover_ratio,
    latency_s,
    reading_tokens_per_s,
)
from llmsim.closed_form.roofline import attention_even_tokens, attention_share, knee_tokens, ridge_flop_per_byte
from llmsim.closed_form.saturation import Saturation, saturated, sequences_for

__all__ = [
    "BeamBlocks",
    "Conversation",
    "Envelope",
    "EnvelopeCost",
    "FleetEstimate",
    "Line",
    "Saturation",
    "Spent",
    "attention_even_tokens",
    "attention_share",
    "beam_blocks",
    "blocks_of",
    "conversation",
    "crossover_ratio",
    "decodes",
    "empty_share",
    "fleet",
    "in_flight",
    "interactive_users",
    "knee_tokens",
    "kv_of_token",
    "latency_s",
    "mean_wait_s",
    "prompts",
    "reading_tokens_per_s",
    "ridge_flop_per_byte",
    "saturated",
    "sequences_for",
    "sequences_in_pool",
    "spent",
    "square_root_staffing",
    "together",
]
