"""The command line as its user meets it: what is on which stream, and with which exit status."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import llmsim
from llmsim import cli
from llmsim.cli import main
from llmsim.report import catalogue

FILE = """
name = "small"
model = "llama-3.1-8b"
[[pools]]
name = "chat"
accelerator = "h100-sxm"
[workload]
kind = "preset"
rate_per_s = 5.0
requests = 20
[slo]
ttft_p99_s = 1.0
tpot_p99_s = 0.05
"""

COLUMNS = "TIMESTAMP,ContextTokens,GeneratedTokens\n"

Output = pytest.CaptureFixture[str]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario of 20 requests."""
    path = tmp_path / "small.toml"
    path.write_text(FILE)
    return path


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m llmsim`` with these arguments."""
    return subprocess.run([sys.executable, "-m", "llmsim", *arguments], capture_output=True, text=True, check=False)


class TestRun:
    def test_json_is_the_summary_and_nothing_else(self, scenario: Path, capsys: Output) -> None:
        assert main(["run", str(scenario), "--json"]) == 0
        printed = capsys.readouterr()
        summary = json.loads(printed.out, parse_constant=pytest.fail)
        assert summary == llmsim.simulate(llmsim.load_scenario(scenario)).summary()
        assert printed.err == ""

    def test_out_keeps_the_result_and_its_report(self, scenario: Path, tmp_path: Path, capsys: Output) -> None:
        out = tmp_path / "result"
        assert main(["run", str(scenario), "--out", str(out), "--json"]) == 0
        printed = capsys.readouterr()
        assert llmsim.load_results(out).summary() == json.loads(printed.out)
        assert "<html" in (out / "report.html").read_text()
        assert str(out / "report.html") in printed.err

    def test_a_saved_result_can_be_reported_and_run_again(self, scenario: Path, tmp_path: Path, capsys: Output) -> None:
        out, page = tmp_path / "result", tmp_path / "page.html"
        assert main(["run", str(scenario), "--out", str(out), "--json"]) == 0
        first = capsys.readouterr().out
        assert main(["report", str(out), "--out", str(page)]) == 0
        assert page.stat().st_size > 0
        capsys.readouterr()
        assert main(["run", str(out / "scenario.json"), "--json"]) == 0
        assert capsys.readouterr().out == first

    def test_set_replaces_values(self, scenario: Path, capsys: Output) -> None:
        assert main(["run", str(scenario), "--set", "workload.requests=5", "--set", "seed=1", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["requests"]["total"] == 5

    def test_the_summary_for_people_names_scenario_and_slo(self, scenario: Path, capsys: Output) -> None:
        assert main(["run", str(scenario)]) == 0
        printed = capsys.readouterr().out
        assert "small" in printed
        assert "TTFT" in printed.upper()


class TestBadScenario:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            (["pools.replica=2"], ["pools[0].replica: unknown key: did you mean 'replicas'?"]),
            (["pools.accelerator=h100-sx"], ["pools[0].accelerator", "did you mean 'h100-sxm'?"]),
            (["workload.rate_per_s=-1"], ["workload.rate_per_s = -1: must be greater than 0"]),
            (["model=llama-3.1-70b"], ["does not fit on h100-sxm", "tensor_parallel_size = 2 would fit"]),
            (["pools.max_model_len=131072", "pools.num_gpu_blocks_override=100"], ["at most 1584"]),
            (["slo.ttft_p98_s=1"], ["slo.ttft_p98_s: unknown limit: did you mean"]),
            (["seed=-1", "run.warm_up_s=-1"], ["seed = -1", "run.warm_up_s = -1"]),
            (["seed"], ["--set seed: needs key=value"]),
        ],
    )
    def test_it_is_told_on_standard_error(
        self, scenario: Path, settings: list[str], said: list[str], capsys: Output
    ) -> None:
        arguments = [part for setting in settings for part in ("--set", setting)]
        assert main(["run", str(scenario), *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert all(text in printed.err for text in said), printed.err
        assert "Traceback" not in printed.err

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            ("", "first line"),
            (COLUMNS, "no rows"),
            (
                f"{COLUMNS}2023-11-16 18:15:46,374,44\n2023-11-16 18:15:47,many,4\n",
                "line 3",
            ),
        ],
    )
    def test_a_bad_trace_is_told_with_its_line(
        self, scenario: Path, tmp_path: Path, rows: str, said: str, capsys: Output
    ) -> None:
        (tmp_path / "trace.csv").write_text(rows)
        assert main(["run", str(scenario), "--set", "workload={kind='trace', path='trace.csv'}"]) == 2
        printed = capsys.readouterr()
        assert "trace.csv" in printed.err
        assert said in printed.err

    @pytest.mark.parametrize(
        "arguments",
        [["run"], ["run", "none.toml"], ["report", "none"], ["frobnicate"], ["catalog", "models", "gpt"], []],
    )
    def test_bad_arguments_have_status_2(self, arguments: list[str], capsys: Output) -> None:
        assert main(arguments) == 2
        assert "Traceback" not in capsys.readouterr().err


class TestCatalog:
    def test_everything_is_listed(self, capsys: Output) -> None:
        assert main(["catalog", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert "h100-sxm" in found["accelerators"]
        assert "llama-3.1-8b" in found["models"]
        assert "azure-conversation-2023" in found["workloads"]
        assert list(found["schedulers"]) == ["vllm", "vllm_v0", "orca", "static"]
        assert list(found["routers"]) == ["round_robin", "least_outstanding", "session_affinity"]

    def test_tables_are_for_people(self, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        for shelf in ("accelerators", "models", "workloads", "schedulers", "routers"):
            assert main(["catalog", shelf]) == 0
            printed = capsys.readouterr().out
            assert all(len(line) <= 80 for line in printed.splitlines())
            assert "…" not in printed, "nothing is cut off"
            assert all(name in printed for name in catalogue.entries(shelf))

    def test_an_entry_is_shown_with_its_sources(self, capsys: Output) -> None:
        assert main(["catalog", "accelerators", "H100"]) == 0
        printed = capsys.readouterr().out
        assert "3.35 TB/s" in printed
        assert "79.19 GiB" in printed
        assert "data sheet" in printed
        assert main(["catalog", "models", "deepseek-ai/DeepSeek-R1"]) == 0
        printed = capsys.readouterr().out
        assert "671.03B" in printed
        assert "2412.19437" in printed

    def test_an_entry_as_json_is_its_file(self, capsys: Output) -> None:
        assert main(["catalog", "accelerators", "NVIDIA H20", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["name"] == "h20"
        assert facts["sources"].keys() >= {"memory_bytes", "power_w"}

    def test_names_of_policies_are_forgiving(self, capsys: Output) -> None:
        assert main(["catalog", "routers", "Round-Robin"]) == 0
        assert "round_robin" in capsys.readouterr().out

    def test_a_policy_is_shown_with_its_settings(self, capsys: Output) -> None:
        assert main(["catalog", "schedulers", "vllm", "--json"]) == 0
        settings = json.loads(capsys.readouterr().out)["settings"]
        assert settings["policy"]["default"] == "fcfs"
        assert settings["max_num_seqs"]["description"] == "Most requests running at once."


def test_schema_is_json(capsys: Output) -> None:
    assert main(["schema"]) == 0
    assert "pools" in json.loads(capsys.readouterr().out)["properties"]


def test_version(capsys: Output) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("llmsim") == llmsim.__version__


def test_help_takes_less_than_300_ms_of_cpu() -> None:
    def cpu_s() -> float:
        before = os.times()
        assert "run" in in_a_process("--help").stdout
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(cpu_s() for _ in range(3)) < 0.3


def test_a_reader_that_goes_away_is_no_fault() -> None:
    command = f"{sys.executable} -m llmsim schema | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_an_interrupt_has_status_130(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmsim.scenario.load_scenario", interrupted)
    assert main(["run", str(scenario)]) == 130


def test_a_broken_invariant_has_status_1_and_asks_to_report(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def broken(*_: Any) -> None:
        raise llmsim.SimulationError("at 1.5 s replica 0 holds blocks of request 3, which has ended")

    monkeypatch.setattr("llmsim.scenario.load_scenario", broken)
    assert main(["run", str(scenario)]) == 1
    printed = capsys.readouterr().err
    assert "report" in printed
    assert "replica 0" in printed


class TestProgress:
    def test_a_short_run_shows_none(self, capsys: Output) -> None:
        with cli._progress(quiet_s=60.0) as progress:
            progress(1.0, 1, 2)
        assert capsys.readouterr().err == ""

    def test_a_log_gets_whole_lines_now_and_then(self, capsys: Output) -> None:
        with cli._progress(quiet_s=0.0) as progress:
            for done in range(5):
                progress(12.5, done, 2000)
        assert capsys.readouterr().err == "simulated 12.5 s, 0 of 2,000 requests done\n"

    def test_a_terminal_is_left_clean(self, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        with cli._progress(quiet_s=0.0) as progress:
            progress(12.5, 1, 2000)
        printed = capsys.readouterr().err
        assert "1 of 2,000" in printed
        assert "\n" not in printed
        assert printed.rpartition("\r")[2] == ""


def test_public_names_are_there_and_loaded_on_first_use() -> None:
    code = "import llmsim, sys; assert not {'numpy', 'pydantic'} & set(sys.modules); print(*dir(llmsim))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(llmsim.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        llmsim.simulat  # noqa: B018
