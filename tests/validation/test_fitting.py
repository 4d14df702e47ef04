"""Calibration: it finds what a server differs in, refuses what the data do not tell, and refuses noise."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmsim.cli import main
from llmsim.errors import ScenarioError
from llmsim.hardware import AcceleratorSpec, load_accelerator
from llmsim.scenario import Pool
from llmsim.validation.fitting import calibrate, profile
from llmsim.validation.kernel_steps import step_of
from llmsim.validation.parameters import PARAMETERS, moved
from tests.factories import a_model
from tests.validation.factories import MEASURED, STEP, a_file

NAMES = [parameter.name for parameter in PARAMETERS]
DECODES = [STEP | {"batch": batch, "context": context} for batch in (1, 8, 64) for context in (512, 4096, 16384)]


def a_server(**units: float) -> AcceleratorSpec:
    """An H100 that differs from the catalogue's by so many units of a parameter's scale."""
    values = [units.get(name.replace(" ", "_"), 0.0) for name in NAMES]
    return moved(load_accelerator("h100-sxm"), PARAMETERS, values)


def measured_on(server: AcceleratorSpec, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The step times that a server would measure."""
    steps = [step_of({key: str(value) for key, value in row.items()}) for row in rows]
    return [
        row | {"latency_ms": step.predict(server).values["step_mean"] * 1e3}
        for row, step in zip(rows, steps, strict=True)
    ]


def test_it_finds_a_slower_memory_and_leaves_the_rest(tmp_path: Path) -> None:
    server = a_server(KV_reading_bandwidth=-2.0, weight_reading_bandwidth=-2.0)
    path = a_file(tmp_path / "steps.csv", measured_on(server, DECODES))
    found = calibrate(path, "h100-sxm")
    assert found.before > 0.1
    assert found.after < 0.03
    assert found.accelerator.efficiency.decode_attention_hbm == pytest.approx(
        server.efficiency.decode_attention_hbm, rel=0.05
    )
    assert "link bandwidth" in found.refused
    assert "matrix product compute" in found.refused


def test_three_points_are_enough_for_what_they_tell(tmp_path: Path) -> None:
    path = a_file(tmp_path / "steps.csv", measured_on(a_server(host_time_of_an_iteration=3.0), DECODES[::4]))
    found = calibrate(path, "h100-sxm")
    assert found.points == 3
    assert found.after < 0.5 * found.before


def test_two_points_are_not(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="2 measurements on h100-sxm; calibration needs at least 3"):
        calibrate(a_file(tmp_path / "steps.csv", DECODES[:2]), "h100-sxm")
    with pytest.raises(ScenarioError, match=r"0 measurements on l40s.*it has measurements on h100-sxm"):
        calibrate(a_file(tmp_path / "steps.csv", DECODES), "l40s")


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_refused(tmp_path: Path, seed: int) -> None:
    """Times of the catalogue's own accelerator, off at random by a factor of two or so."""
    rng = np.random.default_rng(seed)
    rows = measured_on(a_server(), DECODES)
    noisy = [row | {"latency_ms": row["latency_ms"] * np.exp(0.7 * rng.standard_normal())} for row in rows]
    with pytest.raises(ScenarioError, match=r"not calibrated: .* noise"):
        calibrate(a_file(tmp_path / "steps.csv", noisy), "h100-sxm")


def test_the_profile_is_an_accelerator_of_a_scenario(tmp_path: Path) -> None:
    found = calibrate(a_file(tmp_path / "steps.csv", measured_on(a_server(kernel_launches=3.0), DECODES)), "h100-sxm")
    path = tmp_path / "mine.toml"
    path.write_text(profile(found))
    assert load_accelerator(str(path)) == found.accelerator
    pool = Pool(name="one", model=a_model(), accelerator=load_accelerator(str(path)))
    assert pool.accelerator.efficiency.relative_error == pytest.approx(found.after, abs=1e-4)


def test_a_benchmark_calibrates_through_the_simulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TPOT in a closed loop, as a server with 4 ms more host time an iteration has it."""
    loads = [MEASURED | {"concurrency": users, "n_requests": 4 * users} for users in (1, 4, 16)]
    slower_ms = (10.6, 10.9, 11.8)
    rows = [load | {"value": value} for load, value in zip(loads, slower_ms, strict=True)]
    out = tmp_path / "mine.toml"
    path = a_file(tmp_path / "bench.csv", rows)
    assert main(["calibrate", str(path), "--accelerator", "h100-sxm", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "host time of an iteration" in printed
    host_s = load_accelerator(str(out)).efficiency.host_iteration_s
    assert 2e-3 < host_s < 6e-3
