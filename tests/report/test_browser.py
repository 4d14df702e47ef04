"""The report in a real browser: it draws every figure, complains of nothing, and shows the verdict."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from llmsim import simulate, write_report
from llmsim.report.html import FIGURES
from llmsim.report.verdict import judge
from llmsim.scenario import Pool, Scenario
from llmsim.workload import PresetWorkload

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium to show the report in")


def look_at(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The document as the browser leaves it after running its scripts, and what the console says."""
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return shown.stdout, [line for line in shown.stderr.splitlines() if "CONSOLE" in line]


def test_the_report_draws_every_figure_and_shows_the_verdict(tmp_path: Path) -> None:
    scenario = Scenario(
        name="a small chat",
        model="llama-3.1-8b",
        pools=[Pool(name="chat", accelerator="h100-sxm")],
        workload=PresetWorkload(rate_per_s=5.0, requests=50),
        slo={"ttft_p99_s": 1.0},
    )
    results = simulate(scenario)
    document, complaints = look_at(write_report(results, tmp_path / "report.html"), tmp_path / "profile")
    assert complaints == []
    assert judge(results).headline in document
    drawn = re.findall(r'<div id="figure-([\w-]+)" class="js-plotly-plot"><div class="plot-container', document)
    assert drawn == [name for name, *_ in FIGURES]


def test_a_broken_page_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!DOCTYPE html><title>broken</title><script>plot()</script>")
    _, complaints = look_at(page, tmp_path / "profile")
    assert any("plot is not defined" in line for line in complaints)
