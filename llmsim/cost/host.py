"""What the host does to an iteration: time the accelerator waits for, and the padding of CUDA graphs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from llmsim.deployment import Deployment
from llmsim.deployment.overheads import V1_SINCE, vllm_version

CAPTURED = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Token counts of the CUDA graphs that vLLM captures, up to 512 or twice max_num_seqs (vLLM 0.33,
``config/vllm.py``, ``_set_cudagraph_sizes``)."""

V0_SEQUENCE_S = 100e-6
"""Host time for each sequence of an iteration in vLLM's V0 engine, for which the accelerator waits: what follows an
iteration took 3.4 ms for 32 sequences and 0.2 ms for one (vllm-project/vllm#6913)."""


@dataclass(frozen=True, slots=True)
class Host:
    """Host time of iterations in one engine, and the token counts its CUDA graphs have."""

    iteration_s: float
    sequence_s: float
    prefill_iteration_s: float
    layer_s: float
    """Without CUDA graphs: launching the kernels of a layer, which the accelerator overtakes."""
    captured: tuple[int, ...]
    """Token counts with a graph, ascending; none without graphs."""

    @classmethod
    def of(cls, deployment: Deployment) -> "Host":
        """The host of a deployment."""
        efficiency, eager = deployment.accelerator.efficiency, deployment.enforce_eager
        synchronous_s = 0.0 if deployment.async_scheduling else efficiency.host_synchronous_s
        v0_s = V0_SEQUENCE_S if vllm_version(deployment) < V1_SINCE else 0.0
        largest = 2 * (deployment.max_num_seqs or CAPTURED[-1])
        return cls(
            efficiency.host_iteration_s + synchronous_s,
            efficiency.host_sequence_s + v0_s,
            efficiency.host_prefill_iteration_s,
            efficiency.host_eager_layer_s if eager else 0.0,
            () if eager else tuple(size for size in CAPTURED if size <= largest),
        )

    def waited(self, prefills: Any, decodes: Any) -> Any:
        """Seconds that the accelerator waits for in an iteration of so many sequences."""
        return self.iteration_s + self.sequence_s * (prefills + decodes) + self.prefill_iteration_s * (prefills > 0)

    def padded(self, tokens: Any) -> Any:
        """Tokens that the kernels of an iteration compute: those of the next graph, where there is one."""
        tokens = np.asarray(tokens)
        if not self.captured:
            return tokens
        sizes = np.array(self.captured)
        at = np.minimum(np.searchsorted(sizes, tokens), sizes.size - 1)
        return np.where((tokens > 0) & (tokens <= sizes[-1]), sizes[at], tokens)
