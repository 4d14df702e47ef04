"""Keys of prefixes that nobody needs are forgotten in long runs; what is decided stays the same."""

from pathlib import Path

import pytest

from llmsim.engine import prompt_keys
from llmsim.simulation import simulate
from tests.conformance.cases import as_scenario, case_paths, read_case


def test_forgetting_keys_changes_no_hit(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    folder: Path = pytestconfig.getoption("--decisions")
    for path in case_paths(folder):
        case = read_case(path)
        if not case["config"]["enable_prefix_caching"]:
            continue
        monkeypatch.setattr(prompt_keys, "_FEW_KEYS", 4)
        forgetful = simulate(as_scenario(case, leap=True)).record
        monkeypatch.undo()
        hits = int(forgetful.iterations["cached_tokens"].sum())
        assert hits == case["summary"]["total_hit_tokens"], case["name"]
