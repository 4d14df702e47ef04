"""What would make a model fit that does not: more ranks, smaller numbers, or a larger accelerator."""

from dataclasses import replace
from typing import TYPE_CHECKING

from llmsim import catalog
from llmsim.deployment.layout import stages
from llmsim.deployment.memory import rank_ledger
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator
from llmsim.model import Dtype, dtype_bytes

if TYPE_CHECKING:
    from llmsim.deployment.specification import Deployment

NARROWER: tuple[Dtype, ...] = ("fp8", "int4")
"""Weight dtypes to propose, widest first."""


def fits(deployment: "Deployment") -> bool:
    """Whether every rank has the two KV blocks without which nothing can run."""
    return all(rank_ledger(deployment, stage).num_gpu_blocks >= 2 for stage in stages(deployment))


def remedies(deployment: "Deployment") -> list[str]:
    """Each change that would by itself make the model fit, the cheapest of its kind, as a short sentence."""
    found = [_more_ranks(deployment), _narrower(deployment), _larger(deployment)]
    return [each for each in found if each] or [
        "no number of these accelerators would hold it: take a larger one, a smaller dtype or less overhead"
    ]


def _more_ranks(deployment: "Deployment") -> str | None:
    """The smallest larger engine that holds the model: more ranks in a node, then more nodes."""
    node = deployment.accelerator.accelerators_per_node
    sizes = [2**power for power in range(1, 11) if deployment.divides(2**power)]
    for size in sizes:
        if deployment.tensor_parallel_size < size <= node and fits(_wider(deployment, size, 1)):
            return f"tensor_parallel_size = {size} would fit"
    widest = max((size for size in sizes if size <= node), default=1)
    for depth in range(2, deployment.model.num_hidden_layers + 1):
        if fits(_wider(deployment, widest, depth)):
            return (
                f"tensor_parallel_size = {widest} with pipeline_parallel_size = {depth} would fit: "
                f"{widest * depth} accelerators"
            )
    return None


def _narrower(deployment: "Deployment") -> str | None:
    """The widest smaller dtype of weights with which it would fit."""
    present = dtype_bytes(deployment.weight_dtype)
    for dtype in NARROWER:
        if dtype_bytes(dtype) < present and fits(replace(deployment, quantization=dtype)):
            return f"quantization = {dtype} would fit"
    return None


def _larger(deployment: "Deployment") -> str | None:
    """The smallest of the vendor's accelerators in the catalogue that would hold it with the same parallel sizes."""
    present = deployment.accelerator
    known = sorted(map(load_accelerator, catalog.names("accelerators")), key=lambda each: each.memory_bytes)
    for each in known:
        larger = each.memory_bytes > present.memory_bytes and present.vendor in ("", each.vendor)
        if larger and _fits_on(deployment, each.name):
            return f"accelerator = {each.name} would fit"
    return None


def _fits_on(deployment: "Deployment", name: str) -> bool:
    try:
        return fits(replace(deployment, accelerator=load_accelerator(name)))
    except ScenarioError:
        return False


def _wider(deployment: "Deployment", tensor: int, pipeline: int) -> "Deployment":
    return replace(deployment, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
