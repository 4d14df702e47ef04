"""The catalogue finds entries by any of their names and says what it has."""

import difflib

import pytest

from llmsim import catalog
from llmsim.errors import ScenarioError


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        ("accelerators", "h100-sxm", "h100-sxm"),
        ("accelerators", "H100_SXM", "h100-sxm"),
        ("accelerators", "H100 SXM5 80GB", "h100-sxm"),
        ("accelerators", "NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("accelerators", "RTX 4090", "rtx-4090"),
        ("accelerators", "AMD Instinct MI300X", "mi300x"),
        ("accelerators", "TPU Trillium", "tpu-v6e"),
        ("accelerators", "Intel Gaudi 3", "gaudi3"),
        ("models", "DEEPSEEK_R1", "deepseek-r1"),
        ("models", "openai/gpt-oss-120b", "gpt-oss-120b"),
        ("models", "Mistral Nemo", "mistral-nemo-12b"),
        ("models", "LLAMA 3.1 8B", "llama-3.1-8b"),
        ("models", "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("models", "meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("models", "mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
    ],
)
def test_an_entry_is_found_by_any_of_its_names(kind: catalog.Kind, given: str, name: str) -> None:
    assert catalog.entry(kind, given)["name"] == name


@pytest.mark.parametrize("kind", ["accelerators", "models"])
def test_no_two_entries_share_a_name(kind: catalog.Kind) -> None:
    owners: dict[str, str] = {}
    for name in catalog.names(kind):
        for spelling in (name, *catalog.entry(kind, name).get("aliases", ())):
            assert owners.setdefault(spelling.lower(), name) == name
            assert catalog.entry(kind, spelling)["name"] == name


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ScenarioError) as raised:
        catalog.entry("accelerators", "h100-sx")
    message = str(raised.value)
    assert message.startswith("accelerator 'h100-sx' is not in the catalogue: did you mean 'h100-sxm'? ")
    assert message.endswith(f"`llmsim catalog accelerators` lists all {len(catalog.names('accelerators'))}.")


def test_a_name_near_to_nothing_gets_no_suggestion() -> None:
    assert not difflib.get_close_matches("quantumcomputer", catalog.names("models"))
    with pytest.raises(ScenarioError, match=r"model 'quantum computer' is not in the catalogue\. `llmsim "):
        catalog.entry("models", "quantum computer")


def test_what_is_done_to_an_answer_does_not_change_the_next() -> None:
    catalog.entry("accelerators", "h100-sxm")["peak_flop_per_s"]["bfloat16"] = 1.0
    assert catalog.entry("accelerators", "h100-sxm")["peak_flop_per_s"]["bfloat16"] > 1e14
