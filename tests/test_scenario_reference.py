"""The reference of scenario files is what its tool writes, and its examples are scenarios."""

import tomllib
from pathlib import Path

import pytest

from llmsim.scenario import Scenario, scenario_schema
from tools.scenario_examples import EXAMPLES
from tools.write_scenario_reference import REFERENCE, Reference

LEAST = """
name = "the least a scenario needs"
model = "llama-3.1-8b"
pools = [{ name = "chat", accelerator = "h100-sxm" }]
workload = { kind = "preset" }
"""


def test_the_page_is_what_the_tool_writes() -> None:
    told = "write it again: python -m tools.write_scenario_reference"
    assert REFERENCE.read_text(encoding="utf-8") == Reference(scenario_schema()).page(), told


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path or "top")
def test_an_example_may_stand_in_a_scenario_as_it_is(path: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").touch()
    example = tomllib.loads(EXAMPLES[path])
    least = tomllib.loads(LEAST)
    pools = [{**least["pools"][0], **pool} for pool in _pools(example)]
    Scenario.parse(least | example | {"pools": pools}, tmp_path)
    node = example
    for part in path.split(".") if path else ():
        node = node[part][0] if isinstance(node[part], list) else node[part]
    assert node


def _pools(example: dict[str, object]) -> list[dict[str, object]]:
    pools = example.get("pools", [{}])
    return pools if isinstance(pools, list) else [pools]


def test_every_example_is_shown() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert all(example.strip() in page for example in EXAMPLES.values())
