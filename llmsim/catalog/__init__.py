"""Facts about accelerators, models and workloads as TOML files, one an entry, each number with its source.

The lowest floor of the house: it answers with plain mappings, which ``hardware``, ``model`` and ``workload``
turn into specifications. A new entry is a new file; its stem is its name, ``aliases`` are its other names,
``verified`` says which of its numbers (of a model: all) two sources agree on or are the vendor's own.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from llmsim.errors import ScenarioError

Kind = Literal["accelerators", "models", "workloads"]


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """Names of all entries of a kind, sorted. Lists files without reading them."""
    folder = files(__name__) / kind
    found = folder.iterdir() if folder.is_dir() else ()
    return tuple(sorted(file.name.removesuffix(".toml") for file in found if file.name.endswith(".toml")))


def entry(kind: Kind, name: str) -> dict[str, Any]:
    """The facts of one entry, as its file gives them, with the entry's own name under ``name``.

    ``name`` is one of its names, as for ``find``.

    Raises:
        ScenarioError: if there is no such entry; the message suggests the nearest.
    """
    stem = find(kind, name)
    return {**deepcopy(_read(kind, stem)), "name": stem}


def find(kind: Kind, name: str) -> str:
    """The entry's own name, from any of its names.

    ``name`` may be written in any case, with spaces, dashes, dots or underscores, or be one of the entry's
    aliases (marketing names, Hugging Face ids).

    Raises:
        ScenarioError: if there is no such entry; the message suggests the nearest.
    """
    plain = _plain(name)
    stem = _stems(kind).get(plain) or _aliases(kind).get(plain)
    if stem is None:
        raise ScenarioError(_unknown(kind, plain, name))
    return stem


def suggestion(given: str, known: Iterable[str]) -> str:
    """``: did you mean 'x'?`` for the nearest of ``known``, or an empty text when none is near."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f": did you mean {near[0]!r}?" if near else ""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9/]", "", name.lower())


@cache
def _read(kind: Kind, stem: str) -> dict[str, Any]:
    return tomllib.loads((files(__name__) / kind / f"{stem}.toml").read_text(encoding="utf-8"))


@cache
def _stems(kind: Kind) -> dict[str, str]:
    return {_plain(stem): stem for stem in names(kind)}


@cache
def _aliases(kind: Kind) -> dict[str, str]:
    return {_plain(alias): stem for stem in names(kind) for alias in _read(kind, stem).get("aliases", ())}


def _unknown(kind: Kind, plain: str, given: str) -> str:
    """Compares with every spelling, but suggests the entry's own name."""
    spellings = _stems(kind) | _aliases(kind)
    near = difflib.get_close_matches(plain, spellings, n=1)
    hint = f": did you mean {spellings[near[0]]!r}?" if near else "."
    return f"{kind[:-1]} {given!r} is not in the catalogue{hint} `llmsim catalog {kind}` lists all {len(names(kind))}."
