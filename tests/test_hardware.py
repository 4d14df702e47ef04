"""Accelerators: physical sense of the catalogue, agreement with the fits, and the user's own files."""

import csv
import json
import re
from pathlib import Path

import pytest

from llmsim import catalog
from llmsim.errors import ScenarioError
from llmsim.hardware import load_accelerator, nearest_fitted
from llmsim.units import GIB

ACCELERATORS = catalog.names("accelerators")
UNUSUAL_RIDGES = {  # flop per byte, and why the accelerator is outside 100-450
    "h20": (37, "cut in compute, not in memory, for export"),
    "m2-ultra": (34, "no matrix units"),
    "rtx-3090": (76, "tensor cores at half rate"),
    "tpu-v6e": (560, "systolic arrays grown fourfold over the v5e's, memory twofold"),
    "gaudi3": (500, "bfloat16 as fast as fp8"),
}
FP8_AS_FAST_AS_16_BIT = {"gaudi3"}
FP4_OF_FP8 = {"b300-sxm": 3.0, "gb300": 3.0, "rtx-5090": 4.0}  # as NVIDIA says; elsewhere 2
NOT_BINARY_BOX = {"m2-ultra", "xeon-8480"}  # memory shared with the system
BOX_GB = {  # what is printed on the box
    "a10g": 24,
    "a100-pcie-40gb": 40,
    "a100-pcie-80gb": 80,
    "a100-sxm-40gb": 40,
    "a100-sxm-80gb": 80,
    "a30": 24,
    "a40": 48,
    "b200-sxm": 180,
    "b300-sxm": 270,
    "gaudi2": 96,
    "gaudi3": 128,
    "gb200": 186,
    "gb300": 279,
    "gh200": 96,
    "gh200-144gb": 144,
    "h100-nvl": 94,
    "h100-pcie": 80,
    "h100-sxm": 80,
    "h20": 96,
    "h200-sxm": 141,
    "inferentia2": 32,
    "l4": 24,
    "l40s": 48,
    "m2-ultra": 192,
    "mi250x": 64,
    "mi300x": 192,
    "mi325x": 256,
    "mi355x": 288,
    "rtx-3090": 24,
    "rtx-4090": 24,
    "rtx-5090": 32,
    "rtx-pro-6000": 96,
    "t4": 16,
    "tpu-v5e": 16,
    "tpu-v5p": 96,
    "tpu-v6e": 32,
    "trainium2": 96,
    "v100-sxm-16gb": 16,
    "v100-sxm-32gb": 32,
    "xeon-8480": 512,
}
FITTED_SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm",
    "b200-sxm": "b200_sxm",
    "gb200": "gb200",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}


def a_file(folder: Path, **values: object) -> Path:
    """An accelerator file of five numbers, an H100's but for ``values`` (None: left out)."""
    numbers: dict[str, object] = {
        "fp16_flop_per_s": 989e12,
        "hbm_bandwidth_bytes_per_s": 3.35e12,
        "memory_bytes": 80e9,
        "link_bandwidth_bytes_per_s": 450e9,
        "price_usd_per_hour": 2.5,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in (numbers | values).items() if value is not None]
    path = folder / "mine.toml"
    path.write_text("\n".join(lines))
    return path


def faults_of(folder: Path, text: str) -> list[str]:
    (folder / "mine.toml").write_text(text)
    with pytest.raises(ScenarioError) as raised:
        load_accelerator("mine.toml", folder)
    return str(raised.value).splitlines()


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_accelerator_makes_physical_sense(name: str) -> None:
    chip = load_accelerator(name)
    peaks = chip.peak_flop_per_s
    ridge = peaks["bfloat16"] / chip.hbm_bandwidth_bytes_per_s
    if name in UNUSUAL_RIDGES:
        assert ridge == pytest.approx(UNUSUAL_RIDGES[name][0], rel=0.01), UNUSUAL_RIDGES[name][1]
    else:
        assert 100 < ridge < 450, "flop per byte of this decade's: sparse peaks and wrong units fall outside"
    assert peaks.get("float32", 0.0) <= peaks["bfloat16"]
    if "int8" in peaks:
        assert peaks["int8"] >= peaks["bfloat16"]
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(peaks["bfloat16"] * (1 if name in FP8_AS_FAST_AS_16_BIT else 2), rel=0.03)
    if "fp4" in peaks:
        assert peaks["fp4"] == pytest.approx(peaks["fp8"] * FP4_OF_FP8.get(name, 2.0), rel=0.02)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_links_are_slower_than_memory_and_slower_the_farther(name: str) -> None:
    chip = load_accelerator(name)
    assert chip.scale_up.bandwidth_bytes_per_s < chip.hbm_bandwidth_bytes_per_s
    for link in (chip.scale_up, chip.scale_out, chip.host_link):
        if link and link.kind == "pcie":
            assert link.bandwidth_bytes_per_s in (16e9, 32e9, 64e9), "16 lanes of Gen3, 4 or 5, one way"
    if chip.scale_out and chip.accelerators_per_node > 1:
        assert chip.scale_out.bandwidth_bytes_per_s <= chip.scale_up.bandwidth_bytes_per_s
    if chip.idle_power_w is not None:
        assert chip.power_w
        assert chip.idle_power_w < chip.power_w / 4


@pytest.mark.parametrize("name", ACCELERATORS)
def test_memory_is_what_the_driver_reports(name: str) -> None:
    """Boxes of HBM count decimal or binary gigabytes, and the driver and ECC keep some: 0.9-1 of binary."""
    share = load_accelerator(name).memory_bytes / (BOX_GB[name] * GIB)
    assert (0.7 if name in NOT_BINARY_BOX else 0.9) < share <= 1


def test_enough_accelerators_are_complete() -> None:
    """Memory, dense peaks, bandwidth, links, power: all but a price, which is not always public."""
    complete = [
        name
        for name in ACCELERATORS
        if (chip := load_accelerator(name)) and chip.power_w and chip.host_link and "float32" in chip.peak_flop_per_s
    ]
    assert len(complete) >= 22


def test_memory_agrees_with_published_logs() -> None:
    """vLLM's and PyTorch's own words for the totals (sources in the entries)."""
    logged_gib = {"h100-sxm": 79.19, "rtx-4090": 23.52, "b200-sxm": 178.35, "rtx-pro-6000": 94.97}
    for name, gib in logged_gib.items():
        assert load_accelerator(name).memory_bytes / GIB == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_number_names_its_source(name: str) -> None:
    facts = catalog.entry("accelerators", name)
    numbers = facts.keys() - {"name", "aliases", "vendor", "verified", "sources", "efficiency"}
    assert numbers == facts["sources"].keys()
    assert all(len(source) > 20 for source in facts["sources"].values())
    assert set(facts["verified"]) <= numbers
    assert {"peak_flop_per_s"} <= set(facts["verified"])
    if "price_usd_per_hour" in facts:
        assert re.search(r"\b20\d\d\b", facts["sources"]["price_usd_per_hour"]), "a price has a date"
    assert load_accelerator(name).efficiency.source


@pytest.mark.parametrize("name", sorted(ACCELERATORS - FITTED_SYSTEMS.keys()))
def test_an_accelerator_without_a_fit_says_whose_it_borrows(name: str) -> None:
    efficiency = load_accelerator(name).efficiency
    lender = load_accelerator(str(efficiency.borrowed_from)).efficiency
    assert lender.borrowed_from is None
    assert efficiency.prefill_attention_compute == lender.prefill_attention_compute
    assert efficiency.source.startswith(f"Borrowed from {efficiency.borrowed_from}: ")


def test_the_less_alike_the_lender_the_wider_the_error() -> None:
    error = {name: load_accelerator(name).efficiency.relative_error or 0.0 for name in ACCELERATORS}
    vendor = {name: load_accelerator(name).vendor for name in ACCELERATORS}
    for name in ACCELERATORS:
        if name in FITTED_SYSTEMS:
            assert 0 < error[name] < 0.2
        elif vendor[name] == "NVIDIA":
            assert 0.15 <= error[name] <= 0.4
        else:
            assert error[name] >= (0.4 if vendor[name] == "AMD" else 0.5)


def test_a_card_may_borrow_its_links_from_another(tmp_path: Path) -> None:
    """A sister on PCIe lanes has the compute of the one on NVLink, but not its all-reduce."""
    card, sister, linked = map(load_accelerator, ("a100-pcie-80gb", "a100-sxm-80gb", "l40s"))
    assert card.efficiency.gemm_hbm == sister.efficiency.gemm_hbm
    assert card.efficiency.ring_link == linked.efficiency.ring_link
    assert card.efficiency.link_contention_exponent == linked.efficiency.link_contention_exponent > 0
    mine = load_accelerator(str(a_file(tmp_path, borrow="a100-pcie-80gb")))
    assert mine.efficiency.link_contention_exponent == linked.efficiency.link_contention_exponent
    assert mine.efficiency.relative_error == 0.3, "its own, not the lender's"


@pytest.mark.parametrize("name", FITTED_SYSTEMS)
def test_efficiency_times_peak_is_near_to_another_fit(name: str, shared_data: Path) -> None:
    """Of the same kernels, with fewer parameters: shares of other peaks, or of sparse ones, would be far from it. Tiles
    count as in a product of 4,096 columns."""
    fits = json.loads((shared_data / "catalog/roofline_parameters.json").read_text())[FITTED_SYSTEMS[name]]
    with (shared_data / "catalog/hardware_specs.csv").open() as lines:
        peaks = next(row for row in csv.DictReader(lines) if row["device"] == FITTED_SYSTEMS[name])
    chip = load_accelerator(name)
    flop, hbm, share = chip.peak_flop_per_s, chip.hbm_bandwidth_bytes_per_s, chip.efficiency
    fitted_hbm = float(peaks["mem_bw_gbs"]) * 1e9
    assert share.gemm_hbm["bfloat16"] * hbm == pytest.approx(fits["gemm_eff_mem"]["bf16"] * fitted_hbm, rel=0.1)
    assert share.decode_attention_hbm * hbm == pytest.approx(fits["decode_attn_bw_eff"] * fitted_hbm, rel=0.1)
    dtypes = {"bfloat16": "bf16", "fp8": "fp8"} if "fp8" in flop else {"bfloat16": "bf16"}
    for dtype, fitted in dtypes.items():
        fitted_flop = fits["gemm_eff_compute"][fitted] * float(peaks[f"{fitted}_tflops"]) * 1e12
        reached = share.gemm_compute[dtype] / (1 + share.gemm_tile_depth.get(dtype, 0.0) / 4096)
        assert reached * flop[dtype] == pytest.approx(fitted_flop, rel=0.35)


def test_the_a100_has_no_fp8() -> None:
    chip = load_accelerator("a100-sxm-80gb")
    assert "fp8" not in chip.peak_flop_per_s
    assert "fp8" not in chip.efficiency.gemm_compute


def test_links_with_a_switch_have_no_contention() -> None:
    """A fit below 0 would make them faster with more accelerators."""
    for name in ACCELERATORS:
        chip = load_accelerator(name)
        shared = chip.efficiency.link_contention_exponent > 0
        assert shared == (chip.scale_up.kind == "pcie"), name


def test_five_numbers_are_enough(tmp_path: Path) -> None:
    a_file(tmp_path, name="X1", fp8_flop_per_s=2e15)
    chip = load_accelerator("mine.toml", base=tmp_path)
    assert chip.name == "X1"
    assert chip.peak_flop_per_s == {"bfloat16": 989e12, "fp8": 2e15}
    assert chip.memory_bytes == 80e9
    assert chip.price_usd_per_hour == 2.5
    assert chip.efficiency.borrowed_from == "h100-sxm"


def test_a_file_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    assert load_accelerator(str(a_file(tmp_path))).name == "mine"


def test_the_default_lender_has_the_nearest_bandwidth_and_the_same_sort_of_link() -> None:
    assert nearest_fitted(3.2e12, 450e9, "fp8") == "h100-sxm"
    assert nearest_fitted(2.0e12, 300e9, "bfloat16") == "a100-sxm-80gb"
    assert nearest_fitted(2.0e12, 300e9, "fp8") == "h100-sxm", "the nearer A100 has no fp8"
    assert nearest_fitted(8.0e12, 64e9, "fp8") == "rtx-pro-6000", "on PCIe, however fast its memory"
    assert nearest_fitted(0.3e12, 32e9, "fp8") == "l40s"


def test_the_lender_may_be_chosen(tmp_path: Path) -> None:
    chip = load_accelerator(str(a_file(tmp_path, borrow="L40S")))
    assert chip.efficiency.borrowed_from == "l40s"
    chip = load_accelerator(str(a_file(tmp_path, borrow="rtx 4090")))
    assert chip.efficiency.borrowed_from == "l40s", "where the borrower's efficiencies were fitted"


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, "fp16_flops_per_s = 989e12\nhbm_bandwidth_bytes_per_s = 3350\nmemory_bytes = 'big'\n")
    assert all(fault.startswith(f"{tmp_path / 'mine.toml'}: ") for fault in faults)
    text = "\n".join(faults)
    assert "fp16_flops_per_s: unknown key: did you mean 'fp16_flop_per_s'?" in text
    assert "fp16_flop_per_s: is required" in text
    assert "hbm_bandwidth_bytes_per_s = 3350: must be greater than or equal to 10000000000" in text
    assert 'memory_bytes = "big": must be a number' in text
    assert "link_bandwidth_bytes_per_s: is required" in text


def test_fp8_needs_a_lender_that_has_it(tmp_path: Path) -> None:
    path = a_file(tmp_path, fp8_flop_per_s=2e15, borrow="a100-sxm-80gb")
    with pytest.raises(ScenarioError, match=r"has fp8, but efficiency, borrowed from a100-sxm-80gb, has not"):
        load_accelerator(str(path))


def test_an_unknown_lender_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"mine.toml: borrow: accelerator 'h100-sx' .* 'h100-sxm'\?"):
        load_accelerator(str(a_file(tmp_path, borrow="h100-sx")))


def test_a_file_may_have_the_catalogue_form(tmp_path: Path) -> None:
    text = """
        memory_bytes = 60e9
        peak_flop_per_s = { bfloat16 = 900e12 }
        hbm_bandwidth_bytes_per_s = 3e12
        scale_up = { bandwidth_bytes_per_s = 400e9, kind = "nvlink" }
        [efficiency]
        borrow = "h100-sxm"
        gemm_hbm = { bfloat16 = 0.5 }
    """
    (tmp_path / "mine.toml").write_text(text)
    chip = load_accelerator("mine.toml", tmp_path)
    assert chip.efficiency.gemm_hbm == {"bfloat16": 0.5}
    assert chip.efficiency.gemm_compute == load_accelerator("h100-sxm").efficiency.gemm_compute
    faults = faults_of(tmp_path, text.replace("bfloat16 = 900e12", "fp16 = 900e12").replace("kind", "sort"))
    assert "scale_up.sort: unknown key; allowed: bandwidth_bytes_per_s, kind" in faults[0]
    faults = faults_of(tmp_path, text.replace("bfloat16 = 900e12", "bf16 = 900e12"))
    assert [fault.split(": ", 1)[1][:31] for fault in faults] == [
        "peak_flop_per_s: unknown dtype ",
        "peak_flop_per_s.bfloat16 is mis",
    ]


def test_efficiencies_above_one_are_refused(tmp_path: Path) -> None:
    text = """
        memory_bytes = 60e9
        peak_flop_per_s = { bfloat16 = 900e12 }
        hbm_bandwidth_bytes_per_s = 3e12
        scale_up = { bandwidth_bytes_per_s = 400e9 }
        efficiency = { borrow = "h100-sxm", gemm_hbm = { bfloat16 = 1.2 } }
    """
    assert "efficiency.gemm_hbm.bfloat16 = 1.2: must be less than or equal to 1" in faults_of(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read: No such file"), ("memory_bytes = ", "not a TOML file: Invalid value")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ScenarioError, match=f"mine.toml: .*{message}"):
        load_accelerator("mine.toml", tmp_path)
