"""How an engine groups the layers of a rank for KV blocks, where some have a sliding window.

Between the layout and the memory ledger. Layers of a group share a block table; a group of windowed layers gives
blocks back that nobody attends to any more.
"""

from typing import TYPE_CHECKING, NamedTuple

from llmsim.deployment.layout import Stage
from llmsim.deployment.overheads import GROUPS_SINCE, overheads, vllm_version

if TYPE_CHECKING:
    from llmsim.deployment.specification import Deployment

UNEVEN = 1.5
"""Groups are as large as the larger kind of layers if it is less than so many times the smaller one, to pad less."""


class KvGroups(NamedTuple):
    """Groups of layers, all as large as the largest: the others are padded."""

    layers: float
    """Of each group."""
    full: float
    """Groups that keep the whole context."""
    window: float
    """Groups that keep what their window may still attend to."""

    @property
    def width(self) -> float:
        """Blocks for each block size of tokens at full length."""
        return self.full + self.window

    def blocks_per_request(self, deployment: "Deployment", tokens: int) -> float:
        """Blocks, of a group's layers, of a request of ``tokens`` tokens: what it may hold at most."""
        full = -(-tokens // deployment.block_size)
        return full * self.full + min(full, most_in_window(deployment, tokens)) * self.window

    def in_decode(self, deployment: "Deployment", tokens: int) -> float:
        """Blocks of a request that has ``tokens`` tokens and decodes: windows have let go of what they do not see."""
        size, window = deployment.block_size, deployment.model.sliding_window
        full = -(-tokens // size)
        left = 0 if window is None else positions_left(tokens - 1, window, size)
        return full * self.full + (full - left) * self.window


def positions_left(computed: int, window: int, block_size: int) -> int:
    """Blocks of a windowed group that a request has left behind when the token after ``computed`` ones is next.

    Source: vLLM ``v1/core/single_type_kv_cache_manager.py``, ``SlidingWindowManager.get_num_skipped_tokens``.
    """
    return max(0, computed - window + 1) // block_size


def most_in_window(deployment: "Deployment", tokens: int) -> int:
    """Blocks that a request of ``tokens`` tokens may hold in a group with a sliding window.

    Those of the window less one, of an iteration's tokens, and a block that straddles (vLLM
    ``v1/kv_cache_interface.py``, ``SlidingWindowSpec.max_memory_usage_bytes``).
    """
    size, window = deployment.block_size, deployment.model.sliding_window
    if window is None:
        return -(-tokens // size)
    batched = overheads(deployment).tokens or tokens
    return -(-min(window - 1 + batched, tokens) // size) + 1


def kv_groups(deployment: "Deployment", stage: Stage) -> KvGroups:
    """The groups of a stage's ranks.

    vLLM: as many layers each as there are of the rarer kind, or of the other if it is little larger
    (``v1/core/kv_cache_utils.py``, ``_get_kv_cache_groups_uniform_page_size``); one group before there were any.
    Other engines keep a pool for each kind: nothing is padded.
    """
    full, window = stage.full_layers + (deployment.draft_layers if stage.last else 0), stage.window_layers
    if not full or not window:
        return KvGroups(full + window, float(full > 0), float(full == 0))
    if deployment.engine != "vllm":
        return KvGroups(1, full, window)
    if vllm_version(deployment) < GROUPS_SINCE:
        return KvGroups(full + window, 1, 0)
    smaller, larger = sorted((round(full), round(window)))
    layers = larger if larger < UNEVEN * smaller else max(1, smaller)
    return KvGroups(layers, -(-round(full) // layers), -(-round(window) // layers))
