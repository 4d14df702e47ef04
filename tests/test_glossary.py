"""The glossary explains every word that results show, and each of its entries leads to a place that is there."""

import re

import pytest

from llmsim.report.tables import LATENCIES
from tests.conftest import REPOSITORY

GLOSSARY = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^### ([^\n]+)\n\n(.+?)(?=\n##|\Z)", GLOSSARY, re.MULTILINE | re.DOTALL))
POINTER = re.compile(r"^- Code: `(\w+)` in \[`(\S+)`\]\(\.\./(\S+)\)$", re.MULTILINE)
FIELD = """Prefill, Decode, Context window, Position embedding, KV cache, TTFT, TPOT, ITL, Goodput, Chunked prefill,
Continuous batching, Paged attention, Prefix caching, Preemption, Disaggregation, MFU, MBU, Roofline"""


def test_it_has_the_words_of_the_field_and_of_every_result() -> None:
    assert set(ENTRIES) >= {word.strip() for word in FIELD.split(",")}
    assert set(ENTRIES) >= {name for name, _ in LATENCIES.values()}


@pytest.mark.parametrize("word", ENTRIES)
def test_an_entry_is_two_sentences_a_formula_and_a_place_in_the_code(word: str) -> None:
    text, _, rest = ENTRIES[word].partition("\n\n- Formula: ")
    assert len(re.findall(r"[.;](?=\s|$)", re.sub(r"\bal\.", "al", text))) >= 2
    assert rest.startswith("`")
    [(name, shown, path)] = POINTER.findall(rest)
    assert shown == path
    source = (REPOSITORY / path).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(?:(?:def|class) {name}\b|{name}\b.*[:=])", source, re.MULTILINE), (name, path)
