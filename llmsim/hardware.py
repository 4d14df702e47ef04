"""An accelerator and its links as numbers: peaks from the data sheet, efficiencies from measurement.

Stands on the catalogue; the deployment and the cost model read it. ``load_accelerator`` is the only parser of
accelerator files.
"""

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from llmsim import catalog
from llmsim.errors import ScenarioError
from llmsim.faults import build
from llmsim.specification import specification

Share = Annotated[float, Field(gt=0, le=1)]
"""A share of a peak."""

OWN_LINK_BYTES_PER_S = 130e9
"""One way: above it an accelerator has links of its own (NVLink, xGMI: 150 GB/s and more), below it a host's
PCIe lanes (Gen6 x16: 128 GB/s)."""

BORROWED_ERROR = 0.3
"""Error of step times with borrowed efficiencies where none is stated: those of an A100 used for an H100 miss
by 14-30 % (aiconfigurator-core 0.12.0, operator tables of both)."""

PEAK_DTYPES = ("float32", "bfloat16", "fp8", "int8", "fp4")
"""In which dtypes a peak may be stated."""

LINK_PARAMETERS = (
    "one_shot_launch_s",
    "one_shot_link",
    "ring_launch_s",
    "ring_link",
    "all_reduce_in_switch",
    "dispatch_launch_s",
    "link_contention_exponent",
)
"""What ``borrow_link`` borrows: a card on PCIe lanes has the compute of its sister on NVLink, not its links."""


@specification
class LinkSpec:
    """A link between accelerators, seen from one of them."""

    bandwidth_bytes_per_s: PositiveFloat
    """One way."""
    kind: str = "nvlink"
    """nvlink | pcie | xgmi | ici | infiniband | ..."""


@specification
class EfficiencySpec:
    """How close kernels come to the data sheet, and what each costs besides: parameters of the cost model.

    Efficiencies are shares of peak, at most 1. Dictionaries are keyed by the dtype the matrix product
    computes in, and have a value for each dtype the accelerator has a peak of: ``bfloat16`` (also for
    float16), ``float32``, ``fp8``, ``int8``, ``fp4``. Two keys more: ``fp8_block``, fp8 with a scale for
    each 128 x 128 block of weights, is a share of the fp8 peak; ``mxfp4``, experts with 4-bit weights in a
    bfloat16 product, of the bfloat16 peak.
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
    decode_attention_blocks: NonNegativeInt = 0
    """Blocks of threads that run at once where decode attention gives each sequence and KV head to one block from
    beginning to end (FlashAttention-2, which vLLM uses on all but Hopper and data-centre Blackwell): one a
    multiprocessor. Those of the longest contexts then run on alone. 0: contexts are divided evenly."""
    gemm_sustained: dict[str, Share] = Field(default_factory=dict)
    """What is left of ``gemm_compute`` for the tokens beyond the first thousands of a product, when power limits the
    clock; a dtype that is absent keeps all."""
    gemm_tile_rows: dict[str, PositiveInt] = Field(default_factory=dict)
    """Tokens that a tile of a product has: more than fill one are computed in whole tiles; 1 where absent."""
    gemm_tile_depth: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """What starting and ending each tile of a product costs, as so many columns more of its inner dimension: shallow
    products, as of many ranks, reach less of the peak; a dtype that is absent has none."""
    moe_tile_depth: NonNegativeFloat = 0.0
    """The same for the products of experts."""
    moe_padding_tokens: NonNegativeFloat = 0.0
    """Rows by which the tokens of an expert are filled up to whole tiles, on average."""
    moe_imbalance_per_log2_ep: NonNegativeFloat
    one_shot_launch_s: NonNegativeFloat
    """All-reduce by one exchange of everything: fixed time."""
    one_shot_link: Share
    ring_launch_s: NonNegativeFloat
    ring_link: Share
    all_reduce_in_switch: bool = False
    """Within a node all-reduces are added in the switch (NVLink SHARP, since the third NVSwitch generation: NVIDIA
    H100 white paper, "NVLink Switch System"), with which ``ring_link`` was fitted."""
    dispatch_launch_s: NonNegativeFloat | None = None
    """Fixed time of an exchange among data-parallel ranks before and after shared experts; None: ring_launch_s."""
    link_contention_exponent: NonNegativeFloat
    """Links that n accelerators share slow down by (n/2) to this power (PCIe); 0 for switched links."""
    elementwise_hbm: Share
    elementwise_launch_s: NonNegativeFloat
    host_iteration_s: NonNegativeFloat = 0.0
    """Host time of every iteration that the accelerator waits for."""
    host_sequence_s: NonNegativeFloat = 0.0
    """Further host time for each sequence of the iteration."""
    host_prefill_iteration_s: NonNegativeFloat = 0.0
    """Further host time of an iteration that computes prompts."""
    host_synchronous_s: NonNegativeFloat = 0.9e-3
    """Further host time of every iteration where the next one is not scheduled while it runs. Llama-3.1-8B on an H100
    took 7.2 ms a token alone in vLLM of 2025 (public load curve of kubernetes-sigs/inference-perf), of which 6.3 ms
    are kernels."""
    host_eager_layer_s: NonNegativeFloat = 0.35e-3
    """Without CUDA graphs: the host's time to launch the kernels of a layer. A 70B of 80 layers on eight H100 had a
    decode floor of 28 to 31 ms in vLLM of 2023 (Splitwise, arXiv 2311.18677, public traces)."""
    request_s: NonNegativeFloat = 0.0
    """Time of a request outside the step loop (API server, tokenizer), before it reaches the queue."""
    source: str
    """Where the parameters are from."""
    borrowed_from: str | None = None
    """The accelerator they were fitted on, where it is another one."""
    relative_error: NonNegativeFloat | None = None
    """How far step times made with them are off on average, as a share: measured on models left out of the
    fit, or, where they are borrowed, a judgement. None: unknown."""


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
    host_link: LinkSpec | None = None
    """Link to the host's memory."""
    accelerators_per_node: PositiveInt = 8
    """How many the scale_up link joins."""
    power_w: PositiveFloat | None = None
    """The most it draws, as the data sheet says."""
    idle_power_w: NonNegativeFloat | None = None
    """What it draws with nothing loaded."""
    price_usd_per_hour: NonNegativeFloat | None = None
    efficiency: EfficiencySpec
    sources: dict[str, str] = Field(default_factory=dict)
    """Source of each number, by field name."""


@specification
class FiveNumbers:
    """An accelerator known by its data sheet only: the short form of an accelerator file.

    The bounds are not physics: they catch TFLOP/s, GB/s and GB written for FLOP/s, bytes/s and bytes.
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
    """Catalogue name of the accelerator whose efficiencies it takes; absent: ``nearest_fitted`` chooses."""


def load_accelerator(name_or_path: str, base: Path | None = None) -> AcceleratorSpec:
    """An accelerator of the catalogue by any of its names, or one of the user's own from a TOML file.

    A file holds either the catalogue's own form or the short one (``FiveNumbers``). Paths end with ``.toml``
    and are relative to ``base``.

    Raises:
        ScenarioError: for an unknown name, or with all faults of the file, a line each.
    """
    if not name_or_path.endswith(".toml"):
        return _catalogued(catalog.find("accelerators", name_or_path))
    path = (base or Path()) / name_or_path
    facts = _read(path)
    if not facts.keys() & {"peak_flop_per_s", "scale_up", "efficiency"}:
        facts = _long_form(build(FiveNumbers, facts, str(path)))
    return _from_mapping({**facts, "name": facts.get("name") or path.stem}, str(path))


@cache
def _catalogued(name: str) -> AcceleratorSpec:
    return _from_mapping(catalog.entry("accelerators", name), f"catalogue accelerator {name}")


def nearest_fitted(hbm_bandwidth_bytes_per_s: float, link_bandwidth_bytes_per_s: float, dtype: str) -> str:
    """The catalogue accelerator whose efficiencies an unmeasured one borrows.

    Of those with fitted efficiencies for ``dtype`` and the same sort of link (own, or a host's PCIe lanes),
    the one with the nearest HBM bandwidth, in ratio: launch times and shares of bandwidth go with the memory
    system.
    """
    own_link = link_bandwidth_bytes_per_s >= OWN_LINK_BYTES_PER_S
    distance = {}
    for name in catalog.names("accelerators"):
        facts = catalog.entry("accelerators", name)
        same_link = (facts["scale_up"]["bandwidth_bytes_per_s"] >= OWN_LINK_BYTES_PER_S) == own_link
        if same_link and dtype in facts["efficiency"].get("gemm_compute", ()):
            distance[name] = abs(math.log(facts["hbm_bandwidth_bytes_per_s"] / hbm_bandwidth_bytes_per_s))
    return min(distance, key=distance.__getitem__)


def _long_form(five: FiveNumbers) -> dict[str, Any]:
    """Five numbers in the form of a catalogue entry."""
    peaks = {"bfloat16": five.fp16_flop_per_s}
    if five.fp8_flop_per_s is not None:
        peaks["fp8"] = five.fp8_flop_per_s
    link = five.link_bandwidth_bytes_per_s
    lender, reason = five.borrow, "chosen by the user"
    if lender is None:
        dtype = "fp8" if "fp8" in peaks else "bfloat16"
        lender = nearest_fitted(five.hbm_bandwidth_bytes_per_s, link, dtype)
        reason = "the nearest in HBM bandwidth of the fitted accelerators with the same sort of link"
    return {
        "name": five.name,
        "memory_bytes": five.memory_bytes,
        "peak_flop_per_s": peaks,
        "hbm_bandwidth_bytes_per_s": five.hbm_bandwidth_bytes_per_s,
        "scale_up": {
            "bandwidth_bytes_per_s": link,
            "kind": "own" if link >= OWN_LINK_BYTES_PER_S else "pcie",
        },
        "price_usd_per_hour": five.price_usd_per_hour,
        "efficiency": {"borrow": lender, "reason": reason},
    }


def _from_mapping(facts: Mapping[str, Any], where: str) -> AcceleratorSpec:
    given = {key: value for key, value in facts.items() if key not in ("aliases", "verified")}
    efficiency = given.get("efficiency")
    if isinstance(efficiency, Mapping) and "borrow" in efficiency:
        given["efficiency"] = _borrowed(efficiency, where)
    accelerator = build(AcceleratorSpec, given, where)
    if faults := _dtype_faults(accelerator):
        raise ScenarioError("\n".join(f"{where}: {fault}" for fault in faults))
    return accelerator


def _borrowed(efficiency: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The lender's efficiencies, with what ``efficiency`` itself states in their place."""
    lender, fitted = _fitted(efficiency["borrow"], f"{where}: borrow")
    reason = efficiency.get("reason", "chosen by the user")
    source = f"Borrowed from {lender}: {reason}. {fitted['source'].strip()}"
    given = {**fitted, "source": source, "borrowed_from": lender, "relative_error": BORROWED_ERROR}
    if "borrow_link" in efficiency:
        linked, other = _fitted(efficiency["borrow_link"], f"{where}: borrow_link")
        given = {key: value for key, value in given.items() if key not in LINK_PARAMETERS}
        given |= {key: other[key] for key in LINK_PARAMETERS if key in other}
        given["source"] += f" Links: those of {linked}."
    return given | {key: value for key, value in efficiency.items() if key not in ("borrow", "borrow_link", "reason")}


def _fitted(lender: Any, where: str) -> tuple[str, dict[str, Any]]:
    """The accelerator on which the lender's efficiencies were fitted, itself or whose it borrows, and these."""
    try:
        facts = catalog.entry("accelerators", str(lender))
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    if "borrow" not in facts["efficiency"]:
        return facts["name"], facts["efficiency"]
    borrowed = _borrowed(facts["efficiency"], where)
    return borrowed["borrowed_from"], borrowed


def _dtype_faults(accelerator: AcceleratorSpec) -> list[str]:
    """Peaks of unknown dtypes, and peaks without the efficiencies to use them."""
    peaks, efficiency = accelerator.peak_flop_per_s, accelerator.efficiency
    faults = []
    for dtype in sorted(peaks.keys() - set(PEAK_DTYPES)):
        hint = catalog.suggestion(dtype, PEAK_DTYPES)
        faults.append(f"peak_flop_per_s: unknown dtype {dtype!r}{hint} Allowed: {', '.join(PEAK_DTYPES)}.")
    if "bfloat16" not in peaks:
        faults.append("peak_flop_per_s.bfloat16 is missing.")
    lender = f", borrowed from {efficiency.borrowed_from}," if efficiency.borrowed_from else ""
    tables = ("gemm_compute", "gemm_hbm", "gemm_launch_s", "moe_compute", "moe_hbm", "moe_launch_s")
    faults.extend(
        f"peak_flop_per_s has {dtype}, but efficiency{lender} has not: {', '.join(lacking)}."
        for dtype in sorted(peaks.keys() & set(PEAK_DTYPES))
        if (lacking := [table for table in tables if dtype not in getattr(efficiency, table)])
    )
    return faults


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: the accelerator file cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not a TOML file: {error}.") from None
