"""Exchanges between the accelerators of a deployment: how many bytes each sends, over which link."""

from dataclasses import replace

from llmsim.cost.operators import Collective
from llmsim.deployment import Deployment


def all_reduce(deployment: Deployment, name: str, count: float, row_bytes: float, ranks: int) -> Collective:
    """Every rank gets the sum: Z = ``row_bytes`` a row.

    At once each rank sends Z to n-1 others. In two passes, reduce-scatter and all-gather, it sends
    2*(n-1)/n*Z (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009); through an adding
    switch (n+1)/n*Z: Z to be added, and its n-th part of the sum for all.
    """
    passes = 2 * (ranks - 1) / ranks
    if _switch_adds(deployment, ranks):
        passes = min(passes, (ranks + 1) / ranks)
    efficiency = deployment.accelerator.efficiency
    pieces = _in_pieces(deployment, name, count, "tokens", passes * row_bytes, _ring_rate(deployment, ranks))
    return replace(
        pieces,
        one_shot_bytes=(ranks - 1) * row_bytes,
        one_shot_bytes_per_s=_rate(deployment, ranks, ranks) * efficiency.one_shot_link,
        one_shot_launch_s=efficiency.one_shot_launch_s,
    )


def all_gather(deployment: Deployment, name: str, count: float, rows: str, row_bytes: float, ranks: int) -> Collective:
    """Every rank gets what all have, Z = ``row_bytes`` a row together, or (reduce-scatter) its part of a sum:
    each sends (n-1)/n*Z. Engines have no quick one-shot kernel for it."""
    return _in_pieces(deployment, name, count, rows, (ranks - 1) / ranks * row_bytes, _ring_rate(deployment, ranks))


def exchange(deployment: Deployment, name: str, count: float, row_bytes: float, ranks: int) -> Collective:
    """An all-gather or reduce-scatter among data-parallel ranks on their way to the experts of all, which are not in
    step: it starts later than one among tensor-parallel ranks."""
    made = all_gather(deployment, name, count, "tokens", row_bytes, ranks)
    efficiency = deployment.accelerator.efficiency
    launch = efficiency.ring_launch_s if efficiency.dispatch_launch_s is None else efficiency.dispatch_launch_s
    return replace(made, one_shot_launch_s=launch, ring_launch_s=launch)


def send(deployment: Deployment, row_bytes: float) -> Collective:
    """Activations to the next pipeline stage, each tensor parallel rank to its peer."""
    span = deployment.tensor_parallel_size * deployment.pipeline_parallel_size
    return _in_pieces(deployment, "send", 1, "tokens", row_bytes, _rate(deployment, 2, span))


def _switch_adds(deployment: Deployment, ranks: int) -> bool:
    """Whether a switch adds for all ranks: NVLink's, which an accelerator with borrowed efficiencies may lack."""
    within = ranks <= deployment.accelerator.accelerators_per_node
    nvlink = deployment.accelerator.scale_up.kind == "nvlink"
    return within and nvlink and deployment.accelerator.efficiency.all_reduce_in_switch


def _rate(deployment: Deployment, ranks: int, span: int) -> float:
    """Bytes a second of the link that reaches ``span`` accelerators. Where ranks share it (PCIe) it falls
    with (n/2)**exponent."""
    exponent = deployment.accelerator.efficiency.link_contention_exponent
    return deployment.link(span).bandwidth_bytes_per_s / float((ranks / 2) ** exponent)


def _ring_rate(deployment: Deployment, ranks: int) -> float:
    """As ``_rate``, for exchanges in pieces: between nodes as many rings run at once as a node has accelerators, each
    over a link of its own between the nodes (NVIDIA, "Massively scale your deep learning training with NCCL 2.4",
    2019), and no faster than inside a node."""
    node = deployment.accelerator.accelerators_per_node
    if ranks <= node:
        return _rate(deployment, ranks, ranks)
    inside = deployment.accelerator.scale_up.bandwidth_bytes_per_s
    return min(inside, _rate(deployment, ranks, ranks) * node)


def _in_pieces(
    deployment: Deployment, name: str, count: float, rows: str, row_bytes: float, bytes_per_s: float
) -> Collective:
    """An exchange that has one way only."""
    efficiency = deployment.accelerator.efficiency
    rate = bytes_per_s * efficiency.ring_link
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
