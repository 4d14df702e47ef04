"""The same seed gives the same bytes: in one process, and in processes that hash strings differently."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from llmsim.simulation import simulate
from tests.equivalence.drawn import draw_scenario

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS = range(12)


def digest(folder: Path) -> str:
    """One number for all bytes that the runs of ``SEEDS`` save."""
    found = sha256()
    for seed in SEEDS:
        simulate(draw_scenario(seed)).save(folder / str(seed))
    for path in sorted(folder.rglob("*.*")):
        found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def test_a_run_repeated_saves_the_same_bytes(tmp_path: Path) -> None:
    assert digest(tmp_path / "once") == digest(tmp_path / "again")


def test_pythons_hash_decides_nothing(tmp_path: Path) -> None:
    code = "import sys, pathlib, tests.equivalence.test_same_bytes as t; print(t.digest(pathlib.Path(sys.argv[1])))"
    found = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / hash_seed)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert found[0] == found[1]
