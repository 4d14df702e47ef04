"""An accelerator and its links as numbers: peaks from the data sheet, efficiencies from measurement.

Stands on the catalogue; the deployment and the cost model read it. ``load_accelerator`` is the only parser of
accelerator files.
"""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from llmsim import catalog
from llmsim.catalog.faults import build
from llmsim.errors import ScenarioError
from llmsim.specification import specification

Share = Annotated[float, Field(gt=0, le=1)]
"""A share of a peak."""

SWITCHED_LINK_BYTES_PER_S = 1e11
"""One way. Above it no PCIe generation reaches (Gen6 x16: 128 GB/s is not sold with GPUs yet), below it no NVLink or
xGMI of this decade stays: the line between cards that share a host's lanes and those with links of their own."""


@specification
class LinkSpec:
    """A link between accelerators, seen from one of them."""

    bandwidth_bytes_per_s: PositiveFloat
    """One way."""
    kind: str = "nvlink"
    """nvlink | pcie | xgmi | ici | infiniband | ..."""


@specification
class EfficiencySpec:
    """How close kernels come to the data sheet, and what each costs besides: the parameters of the cost model.

    Efficiencies are shares of peak, at most 1. Dictionaries are keyed by the dtype the matrix product computes in:
    ``bfloat16`` (also for float16), ``fp8``, ``fp8_block`` (fp8 with a scale per 128 x 128 block of weights, a share
    of the fp8 peak), ``int8``, ``fp4``. ``mxfp4`` (experts only) are 4-bit weights in a bfloat16 product, a share of
    the bfloat16 peak. A catalogue entry has a value for each dtype it has a peak of, float32 apart.
    """

    gemm_compute: dict[str, Share]
    gemm_hbm: dict[str, Share]
    gemm_launch_s: dict[str, NonNegativeFloat]
    prefill_attention_compute: Share
    prefill_attention_launch_s: NonNegativeFloat
    decode_attention_hbm: Share
    decode_attention_launch_s: NonNegativeFloat
    moe_compute: dict[str, Share]
    moe_hbm: dict[str, Share]
    moe_launch_s: dict[str, NonNegativeFloat]
    moe_imbalance_per_log2_ep: NonNegativeFloat
    one_shot_launch_s: NonNegativeFloat
    """All-reduce by one exchange of everything: fixed time."""
    one_shot_link: Share
    ring_launch_s: NonNegativeFloat
    ring_link: Share
    link_contention_exponent: NonNegativeFloat
    """Links that n accelerators share slow down by (n/2) to this power (PCIe); 0 for switched links."""
    elementwise_hbm: Share
    elementwise_launch_s: NonNegativeFloat
    host_iteration_s: NonNegativeFloat = 0.0
    """Host time of every iteration that the accelerator waits for."""
    host_sequence_s: NonNegativeFloat = 0.0
    """Further host time for each sequence of the iteration."""
    request_s: NonNegativeFloat = 0.0
    """Time of a request outside the step loop (API server, tokenizer), before it reaches the queue."""
    source: str
    """Where the parameters are from."""
    borrowed_from: str | None = None
    """The accelerator they were fitted on, where it is another one."""


@specification
class AcceleratorSpec:
    """One accelerator: what its data sheet says, and how well kernels use it."""

    name: str
    vendor: str = ""
    memory_bytes: PositiveFloat
    """As the driver reports it, which is less than what is on the box."""
    peak_flop_per_s: dict[str, PositiveFloat]
    """Dense peak (never 2:4 sparse) by dtype: float32, bfloat16, fp8, int8, fp4."""
    hbm_bandwidth_bytes_per_s: PositiveFloat
    scale_up: LinkSpec
    """Link to the accelerators of the same node (NVLink, xGMI, or PCIe)."""
    scale_out: LinkSpec | None = None
    """Link to other nodes."""
    accelerators_per_node: PositiveInt = 8
    power_w: PositiveFloat | None = None
    """The most it draws, as the data sheet says."""
    price_usd_per_hour: NonNegativeFloat | None = None
    efficiency: EfficiencySpec
    sources: dict[str, str] = Field(default_factory=dict)
    """Source of each number, by field name."""


@specification
class FiveNumbers:
    """An accelerator known by its data sheet only: the short form of an accelerator file.

    The bounds are no physics: they catch TFLOP/s, GB/s and GB written where FLOP/s, bytes/s and bytes are meant.
    """

    fp16_flop_per_s: float = Field(ge=1e12, le=1e17)
    """Dense peak of float16 and bfloat16."""
    hbm_bandwidth_bytes_per_s: float = Field(ge=1e10, le=1e15)
    memory_bytes: float = Field(ge=1e9, le=1e14)
    """As the driver reports it."""
    link_bandwidth_bytes_per_s: float = Field(ge=1e8, le=1e14)
    """To another accelerator of the node, one way."""
    price_usd_per_hour: NonNegativeFloat
    name: str | None = None
    """The file's stem if absent."""
    fp8_flop_per_s: float | None = Field(None, ge=1e12, le=1e17)
    """Dense peak of fp8; absent: the chip has none."""
    borrow: str | None = None
    """Catalogue name of the accelerator whose efficiencies it takes; absent: the one ``nearest_fitted`` chooses."""


def load_accelerator(name_or_path: str, base: Path | None = None) -> AcceleratorSpec:
    """An accelerator of the catalogue by any of its names, or one of the user's own from a TOML file.

    A file holds either the catalogue's own form or the short one (``FiveNumbers``). Paths end with ``.toml`` and are
    relative to ``base``.

    Raises:
        ScenarioError: for an unknown name, or with all faults of the file, a line each.
    """
    if not name_or_path.endswith(".toml"):
        return _from_catalog(name_or_path)
    path = (base or Path()) / name_or_path
    given = _read(path)
    if given.keys() & {"peak_flop_per_s", "scale_up", "efficiency"}:
        return _from_mapping({"name": path.stem, **given}, str(path))
    return _from_five_numbers(build(FiveNumbers, given, str(path)), path)


def nearest_fitted(hbm_bandwidth_bytes_per_s: float, link_bandwidth_bytes_per_s: float, dtype: str) -> str:
    """The catalogue accelerator whose efficiencies an unmeasured one borrows.

    Of those with fitted efficiencies for ``dtype`` and the same sort of link (own links, or a host's PCIe lanes), the
    one with the nearest HBM bandwidth, in ratio: launch times and shares of bandwidth go with the memory system.
    """
    switched = link_bandwidth_bytes_per_s >= SWITCHED_LINK_BYTES_PER_S
    distance = {}
    for name in catalog.names("accelerators"):
        facts = catalog.entry("accelerators", name)
        same_link = (facts["scale_up"]["bandwidth_bytes_per_s"] >= SWITCHED_LINK_BYTES_PER_S) == switched
        if same_link and dtype in facts["efficiency"].get("gemm_compute", {}):
            distance[name] = abs(math.log(facts["hbm_bandwidth_bytes_per_s"] / hbm_bandwidth_bytes_per_s))
    return min(distance, key=distance.__getitem__)


def _from_catalog(name: str) -> AcceleratorSpec:
    facts = catalog.entry("accelerators", name)
    return _from_mapping(facts, f"catalogue accelerator {facts['name']}")


def _from_mapping(facts: Mapping[str, Any], where: str) -> AcceleratorSpec:
    given = {key: value for key, value in facts.items() if key != "aliases"}
    efficiency = given.get("efficiency")
    if isinstance(efficiency, Mapping) and "borrow" in efficiency:
        given["efficiency"] = _borrowed(efficiency, where)
    return build(AcceleratorSpec, given, where)


def _borrowed(efficiency: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The lender's efficiencies, with what ``efficiency`` itself states in their place."""
    own = {key: value for key, value in efficiency.items() if key not in ("borrow", "reason")}
    lender = _lender(efficiency["borrow"], f"{where}: efficiency.borrow")
    reason = efficiency.get("reason", "stated by the user")
    source = f"borrowed from {lender['name']} ({reason}). {lender['efficiency']['source']}"
    return {**lender["efficiency"], "source": source, "borrowed_from": lender["name"], **own}


def _lender(name: Any, where: str) -> dict[str, Any]:
    """Facts of a catalogue accelerator that has fitted efficiencies."""
    try:
        facts = catalog.entry("accelerators", str(name))
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    if "borrow" in facts["efficiency"]:
        own = facts["efficiency"]["borrow"]
        raise ScenarioError(f"{where} = {name!r}: it has borrowed itself; borrow from {own!r}, where they were fitted.")
    return facts


def _from_five_numbers(five: FiveNumbers, path: Path) -> AcceleratorSpec:
    dtype = "bfloat16" if five.fp8_flop_per_s is None else "fp8"
    bandwidths = five.hbm_bandwidth_bytes_per_s, five.link_bandwidth_bytes_per_s
    reason = "chosen by the user" if five.borrow else "nearest HBM bandwidth among the fitted with the same sort of link"
    lender = _lender(five.borrow or nearest_fitted(*bandwidths, dtype), f"{path}: borrow")
    if dtype not in lender["peak_flop_per_s"] and dtype == "fp8":
        raise ScenarioError(
            f"{path}: borrow = {five.borrow!r}: it has no fp8 efficiencies, but fp8_flop_per_s = {five.fp8_flop_per_s:g} "
            "is given; leave out fp8_flop_per_s or borrow from an accelerator with fp8."
        )
    peaks = {"bfloat16": five.fp16_flop_per_s, "fp8": five.fp8_flop_per_s}
    facts = {
        "name": five.name or path.stem,
        "memory_bytes": five.memory_bytes,
        "peak_flop_per_s": {dtype: peak for dtype, peak in peaks.items() if peak is not None},
        "hbm_bandwidth_bytes_per_s": five.hbm_bandwidth_bytes_per_s,
        "scale_up": {
            "bandwidth_bytes_per_s": five.link_bandwidth_bytes_per_s,
            "kind": lender["scale_up"]["kind"],
        },
        "price_usd_per_hour": five.price_usd_per_hour,
        "efficiency": {"borrow": lender["name"], "reason": reason},
    }
    return _from_mapping(facts, str(path))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: the accelerator file cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not a TOML file: {error}.") from None
