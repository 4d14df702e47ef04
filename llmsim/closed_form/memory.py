"""KV blocks of paged, reserved and shared sequences."""

from typing import NamedTuple

from llmsim.closed_form.lines import Line
from llmsim.deployment import Deployment, layout
from llmsim.model import dtype_bytes


def kv_of_token(deployment: Deployment, key: str, label: str) -> Line:
    """KV bytes of a token over the layers of the whole model, as one tensor parallel rank holds them."""
    model = deployment.model
    layers = model.attention_layers + deployment.draft_layers
    terms: dict[str, float] = {"layers": layers, "bytes": dtype_bytes(deployment.kv_dtype)}
    if model.mla:
        formula = "layers * (kv_lora_rank + qk_rope_head_dim) * bytes"
        terms |= {"kv_lora_rank": model.mla.kv_lora_rank, "qk_rope_head_dim": model.mla.qk_rope_head_dim}
    else:
        formula = "2 * layers * kv_heads * head_dim * bytes"
        terms |= {"kv_heads": layout.kv_heads(deployment), "head_dim": model.head_dim}
    return Line(key, label, layers * layout.kv_bytes_per_token(deployment), "bytes", formula, terms)


def sequences_in_pool(pool_tokens: int, tokens: int, block_size: int = 16) -> int:
    """Sequences of ``tokens`` tokens that a pool holds at once in whole blocks.

    ``tokens`` is what each takes: its own length where blocks come as they are needed (paging), the longest it may
    become where they are reserved (Orca), the longest that any request may become where a slot is one size for all.
    """
    return (pool_tokens // block_size) // blocks_of(tokens, block_size)


def blocks_of(tokens: int, block_size: int = 16) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // block_size)


def empty_share(tokens: float, block_size: int) -> float:
    """Share of held KV memory that is empty, for sequences of ``tokens`` tokens on average.

    Only the last block of a sequence is partly empty; where lengths fall evenly over it, by (block_size - 1) / 2 tokens
    on average (Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
    SOSP 2023, section 4).
    """
    empty = (block_size - 1) / 2
    return empty / (tokens + empty)


class BeamBlocks(NamedTuple):
    """KV blocks of one request with several beams (or samples)."""

    unshared: int
    """Every beam holds all of its own."""
    shared: int
    """Full blocks of the prompt are held once; at most, when beams share nothing that they generated."""

    @property
    def saved(self) -> float:
        """Share of the blocks that sharing saves, at least."""
        return 1 - self.shared / self.unshared


def beam_blocks(prompt_tokens: int, output_tokens: int, beams: int, block_size: int = 16) -> BeamBlocks:
    """What beams hold at their end with and without shared prompt blocks.

    A partly filled block of the prompt is copied on the first write to it (SOSP 2023 paper of PagedAttention, section
    4.4), so that each beam has its own.
    """
    full = prompt_tokens // block_size
    own = blocks_of(prompt_tokens + output_tokens, block_size) - full
    return BeamBlocks(beams * (full + own), full + beams * own)
