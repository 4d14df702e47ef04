"""Exchanges between the accelerators of a deployment: how many bytes each sends, over which link."""

from dataclasses import replace

from llmsim.cost.operators import Collective
from llmsim.deployment import Deployment
from llmsim.hardware import LinkSpec

SWITCH_REDUCTION_BYTES_PER_S = 450e9
"""NVLink of this rate and more ends in switches that add (NVLink SHARP, since the third NVSwitch generation:
NVIDIA H100 white paper, "NVLink Switch System"). Per-operator times of H100 and H200 at 2, 4 and 8 ranks
agree with it: one efficiency of 0.57 fits all, where a ring needs 0.50, 0.69 and 0.90."""


def all_reduce(deployment: Deployment, name: str, count: float, row_bytes: float, ranks: int) -> Collective:
    """Every rank gets the sum: Z = ``row_bytes`` a row.

    At once each rank sends Z to n-1 others. In two passes, reduce-scatter and all-gather, it sends
    2*(n-1)/n*Z (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009); through an adding
    switch (n+1)/n*Z: Z to be added, and its n-th part of the sum for all.
    """
    passes = 2 * (ranks - 1) / ranks
    if switch_adds(deployment.link(ranks)):
        passes = min(passes, (ranks + 1) / ranks)
    efficiency, rate = deployment.accelerator.efficiency, _rate(deployment, ranks, ranks)
    pieces = _in_pieces(deployment, name, count, "tokens", passes * row_bytes, ranks, ranks)
    return replace(
        pieces,
        one_shot_bytes=(ranks - 1) * row_bytes,
        one_shot_bytes_per_s=rate * efficiency.one_shot_link,
        one_shot_launch_s=efficiency.one_shot_launch_s,
    )


def all_gather(deployment: Deployment, name: str, count: float, rows: str, row_bytes: float, ranks: int) -> Collective:
    """Every rank gets what all have, Z = ``row_bytes`` a row together, or (reduce-scatter) its part of a sum:
    each sends (n-1)/n*Z. Engines have no quick one-shot kernel for it."""
    return _in_pieces(deployment, name, count, rows, (ranks - 1) / ranks * row_bytes, ranks, ranks)


def send(deployment: Deployment, row_bytes: float) -> Collective:
    """Activations to the next pipeline stage, each tensor parallel rank to its peer."""
    span = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
    return _in_pieces(deployment, "send", 1, "tokens", row_bytes, 2, span)


def switch_adds(link: LinkSpec) -> bool:
    """Whether all-reduces over a link are added in its switch."""
    return link.kind == "nvlink" and link.bandwidth_bytes_per_s >= SWITCH_REDUCTION_BYTES_PER_S


def _rate(deployment: Deployment, ranks: int, span: int) -> float:
    """Bytes a second of the link that reaches ``span`` accelerators. Where ranks share it (PCIe) it falls
    with (n/2)**exponent."""
    exponent = deployment.accelerator.efficiency.link_contention_exponent
    return deployment.link(span).bandwidth_bytes_per_s / float((ranks / 2) ** exponent)


def _in_pieces(
    deployment: Deployment, name: str, count: float, rows: str, row_bytes: float, ranks: int, span: int
) -> Collective:
    """An exchange that has one way only."""
    efficiency = deployment.accelerator.efficiency
    rate = _rate(deployment, ranks, span) * efficiency.ring_link
    return Collective(
        name=name,
        count=count,
        rows=rows,
        one_shot_bytes=row_bytes,
        one_shot_bytes_per_s=rate,
        one_shot_launch_s=efficiency.ring_launch_s,
        ring_bytes=row_bytes,
        ring_bytes_per_s=rate,
        ring_launch_s=efficiency.ring_launch_s,
    )
