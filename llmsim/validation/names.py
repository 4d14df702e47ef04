"""Names of models, accelerators and data types as tables write them, as the catalogue knows them."""

import re
from functools import cache

from llmsim import catalog
from llmsim.catalog import Kind
from llmsim.errors import ScenarioError
from llmsim.validation.facts import Reason, SkippedRowError

_DROPPED = {
    "models": r"(?i)[- ]*(fp8|fp4|nvfp4|awq|gptq|instruct|2507|kv|chat|hf|base|v0\.1|meta)\b",
    "accelerators": r"(?i)[- ]*(\(.*\)|sxm\d?|nvidia|cts|\d+ ?gb|hbm\d)",
}
"""What may be left out of a name when it is not known as it is."""

MEMORY_TOLERANCE = 0.12
"""How far the memory a name states may be from what the accelerator's driver reports: GB, GiB, and what is reserved."""

_ALIASES = {"h100": "h100-sxm", "h200": "h200-sxm", "b200": "b200-sxm", "mistral-7b": "mistral-7b-v0.1"}

WEIGHTS = {"bf16": None, "fp16": None, "bfloat16": None, "float16": None, "none": None, "": None, "-": None}
"""Data types of weights that are no quantization."""
QUANTIZATIONS = {
    "fp8": "fp8",
    "fp8_block": "fp8",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "w4a16_mxfp4": "mxfp4",
    "awq": "int4",
    "int4": "int4",
    "int8": "int8",
}


def accelerator(name: str) -> str:
    """The catalogue's name of an accelerator, from a name that may also state its memory or form factor.

    Raises SkippedRowError when it is not in the catalogue.
    """
    found = _find("accelerators", name, Reason.accelerator)
    stated = re.search(r"(\d+) ?GB", name)
    gigabytes = catalog.entry("accelerators", found)["memory_bytes"] / 1e9
    if stated and abs(float(stated[1]) / gigabytes - 1) > MEMORY_TOLERANCE:
        raise SkippedRowError(Reason.accelerator, name)
    return found


def model(name: str) -> str:
    """The catalogue's name of a model, from one that may also name its owner, quantization or tuning.

    Raises SkippedRowError when it is not in the catalogue.
    """
    return _find("models", name, Reason.model)


def quantization(name: str) -> str | None:
    """The data type of quantized weights; None for 16 bit.

    Raises SkippedRowError for one that is not simulated.
    """
    plain = name.strip().lower()
    if plain in WEIGHTS:
        return None
    if plain not in QUANTIZATIONS:
        raise SkippedRowError(Reason.dtype, name)
    return QUANTIZATIONS[plain]


def _find(kind: Kind, name: str, reason: Reason) -> str:
    found = _spelled(kind, name)
    if found is None:
        raise SkippedRowError(reason, name)
    return found


@cache
def _spelled(kind: Kind, name: str) -> str | None:
    """The catalogue's name for the first spelling it knows."""
    owner_left_out, bare = name.rpartition("/")[2], re.sub(r" *\(.*", "", name)
    short = re.sub(_DROPPED[kind], "", owner_left_out).strip(" -")
    for spelling in (name, owner_left_out, bare, short, _ALIASES.get(short.lower(), "")):
        try:
            return catalog.find(kind, spelling)
        except ScenarioError:
            continue
    return None
