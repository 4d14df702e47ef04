"""How fast llmsim is: CPU seconds and peak memory of whole runs, each in a process of its own, median of five.

    python benchmarks/run.py [--runs 5] [--only NAME ...] [--log benchmarks/log.jsonl]

prints a table and appends one JSON line with the figures and the machine. Requests per CPU-second are those beyond the
first 500: the CPU time of a process less that of the same with 500 requests, so that the figure does not depend on how
long Python takes to start and to load what a result is made with.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table: a scenario with some keys replaced."""

    name: str
    scenario: str
    requests: int
    settings: tuple[str, ...] = ()


TRACE_REQUESTS = 19_366
FIRST_REQUESTS = 500
CASES = (
    *(Case(f"azure x{rate}", f"azure_x{rate}.toml", TRACE_REQUESTS) for rate in ("0.2", "1", "6")),
    *(
        Case(f"azure x{rate}, record {level}", f"azure_x{rate}.toml", TRACE_REQUESTS, (f"run.record={level}",))
        for rate in ("0.2", "1", "6")
        for level in ("full", "summary")
    ),
    *(
        Case(
            f"azure x{rate}, prefix caching",
            f"azure_x{rate}.toml",
            TRACE_REQUESTS,
            ("pools.engine.enable_prefix_caching=true",),
        )
        for rate in ("0.2", "1", "6")
    ),
    Case("azure x1, stepped", "azure_x1.toml", TRACE_REQUESTS, ("run.leap=false",)),
    Case("KV-starved", "kv_starved.toml", TRACE_REQUESTS),
    Case("preset, 10^4", "preset.toml", 10_000),
    Case("preset, 10^5", "preset.toml", 100_000, ("workload.requests=100000",)),
    Case("preset, 10^6", "preset.toml", 1_000_000, ("workload.requests=1000000",)),
    Case("backlog of 100,000", "backlog.toml", 100_000),
    Case("same, arriving at 100 a second", "backlog.toml", 100_000, ("workload.clients.0.rate_per_s=100.0",)),
    Case(
        "16 replicas",
        "preset.toml",
        100_000,
        ("pools.replicas=16", "workload.rate_per_s=80.0", "workload.requests=100000"),
    ),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians of one case."""

    name: str
    cpu_s: float
    requests_per_cpu_s: float
    peak_mib: float


def measure(command: list[str], runs: int) -> tuple[float, float]:
    """Median CPU seconds and peak MiB of a command."""
    cpu, peak = [], []
    for _ in range(runs):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
        cpu.append(usage.ru_utime + usage.ru_stime)
        peak.append(usage.ru_maxrss / 1024)
    return statistics.median(cpu), statistics.median(peak)


def command(case: Case, *settings: str) -> list[str]:
    """The command line of a case."""
    pairs = [part for setting in (*case.settings, *settings) for part in ("--set", setting)]
    return [sys.executable, "-m", "llmsim", "run", str(FOLDER / case.scenario), "--json", *pairs]


def figure(case: Case, runs: int) -> Figure:
    """Measure one case."""
    start_s, _ = measure(command(case, f"workload.requests={FIRST_REQUESTS}"), runs)
    cpu_s, peak_mib = measure(command(case), runs)
    return Figure(case.name, cpu_s, (case.requests - FIRST_REQUESTS) / max(cpu_s - start_s, 1e-9), peak_mib)


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    cpus = Path("/proc/cpuinfo")
    models = [line.partition(":")[2].strip() for line in cpus.read_text().splitlines() if "model name" in line]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def main() -> None:
    """Measure, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="parts of the names of the cases to run")
    parser.add_argument("--log", type=Path, default=FOLDER / "log.jsonl")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cases = [case for case in CASES if not options.only or any(part in case.name for part in options.only)]
    start_up = {
        "llmsim --help": measure([sys.executable, "-m", "llmsim", "--help"], options.runs)[0],
        "100 requests": measure(command(Case("", "preset.toml", 100), "workload.requests=100"), options.runs)[0],
    }
    for name, cpu_s in start_up.items():
        print(f"{name:<34} {cpu_s:8.2f} CPU s", flush=True)
    figures = []
    for case in cases:
        figures.append(found := figure(case, options.runs))
        print(
            f"{found.name:<34} {found.cpu_s:8.2f} CPU s {found.requests_per_cpu_s:10,.0f} requests/CPU-s "
            f"{found.peak_mib:8,.0f} MiB",
            flush=True,
        )
    line = {"machine": machine(), "start_up_cpu_s": start_up, "figures": [asdict(each) for each in figures]}
    with options.log.open("a") as log:
        log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
