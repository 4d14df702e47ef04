"""The error an estimate states is that of the nearest measured servers."""

import csv

import pytest

from llmsim import catalog
from llmsim.validation.stated import (
    ANY,
    ENOUGH,
    FAMILIES,
    FIGURES,
    FILE,
    ServerKind,
    kind_of_server,
    stated_errors,
    stated_sentence,
)


def test_a_kind_with_enough_facts_speaks_for_itself() -> None:
    kind = kind_of_server("h100-sxm", "bfloat16", experts=False)
    assert kind == ServerKind("Hopper", "16-bit", "dense")
    assert {each.kind for each in stated_errors(kind).values()} == {kind}
    assert all(each.facts >= ENOUGH for each in stated_errors(kind).values())


def test_the_nearest_wider_kind_stands_in() -> None:
    found = stated_errors(kind_of_server("b200-sxm", "nvfp4", experts=True))
    assert found["TPOT"].kind == ServerKind("Blackwell", ANY, ANY)
    nothing_like_it = stated_errors(kind_of_server("mi300x", "fp8", experts=False))
    assert {each.kind for each in nothing_like_it.values()} == {ServerKind(ANY, ANY, ANY)}
    assert "all servers measured" in stated_sentence("mi300x", "fp8", experts=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_of_the_catalogue(family: str) -> None:
    names = catalog.names("accelerators")
    assert all(any(name.startswith(start) for name in names) for start in FAMILIES[family])


def test_wider_kinds_hold_the_facts_of_narrower_ones() -> None:
    """The table's own arithmetic: weights and model left out, a family's facts are the sum of its kinds'."""
    with FILE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for figure in FIGURES:
        of = {
            ServerKind(*(row[key] for key in ServerKind._fields)): int(row["facts"])
            for row in rows
            if row["figure"] == figure
        }
        narrow = sum(facts for kind, facts in of.items() if ANY not in kind)
        assert of[ServerKind(ANY, ANY, ANY)] == narrow
        assert all(0 <= float(row["median"]) < 1 for row in rows)
