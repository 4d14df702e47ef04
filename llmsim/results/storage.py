"""Result folders: a run on disk, the same bytes for the same run (no times of day, fixed writer options).

``requests.parquet``, ``iterations.parquet``, ``preemptions.parquet`` and ``itl.parquet`` hold the columns
of a ``RunRecord``, ``summary.json`` the summary, ``scenario.json`` the scenario in canonical form,
``facts.json`` the rest: versions, the hash of the scenario, facts and totals.
"""

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from llmsim.errors import ScenarioError
from llmsim.results.metrics import SCHEMA_VERSION
from llmsim.results.record import Columns, RunFacts, RunRecord, Totals

TABLES = ("requests", "iterations", "preemptions", "itl")
FILES = ("facts.json", "scenario.json", "summary.json", *(f"{table}.parquet" for table in TABLES))


def write_result(folder: Path, record: RunRecord, summary: dict[str, Any]) -> None:
    """Write a record and its summary to a folder, which is made when it does not exist.

    Raises ``ScenarioError`` when the folder is a file or holds something else than an earlier result.
    """
    # 50 ms to import.
    from importlib.metadata import version

    _claim(folder)
    facts, totals = asdict(record.facts), asdict(record.totals)
    scenario_text = facts.pop("scenario_text")
    itl = {"itl_s": totals.pop("itl_values_s"), "count": totals.pop("itl_counts")}
    tables = dict(zip(TABLES, (record.requests, record.iterations, record.preemptions, itl), strict=True))
    for name, columns in tables.items():
        _write_table(folder / f"{name}.parquet", columns)
    (folder / "scenario.json").write_text(scenario_text, encoding="utf-8", newline="\n")
    _write_json(folder / "summary.json", summary)
    about = {
        "schema_version": SCHEMA_VERSION,
        "llmsim_version": version("llmsim"),
        "scenario_sha256": sha256(scenario_text.encode()).hexdigest(),
        "facts": facts,
        "totals": totals,
    }
    _write_json(folder / "facts.json", about)


def read_result(folder: Path) -> tuple[RunRecord, dict[str, Any]]:
    """The record and the summary of a result folder.

    Raises ``ScenarioError`` naming the missing or damaged file, the unknown version or the edited scenario.
    """
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        what = "is not a result folder" if len(missing) == len(FILES) else "is not a whole result"
        raise ScenarioError(f"{folder}: {what}: {', '.join(missing)} not found; results.save(folder) writes one")
    about = _read_json(folder / "facts.json")
    found = about.get("schema_version")
    if found != SCHEMA_VERSION:
        raise ScenarioError(
            f"{folder / 'facts.json'}: schema_version {found!r} is not known; allowed is {SCHEMA_VERSION}"
        )
    scenario = (folder / "scenario.json").read_bytes()
    if sha256(scenario).hexdigest() != about["scenario_sha256"]:
        raise ScenarioError(
            f"{folder / 'scenario.json'}: edited after the run: its sha256 is not the one in facts.json; "
            "simulate the changed scenario instead"
        )
    tables = {name: _read_table(folder / f"{name}.parquet") for name in TABLES}
    itl = tables.pop("itl")
    record = RunRecord(
        facts=RunFacts(scenario_text=scenario.decode(), **about["facts"]),
        totals=Totals(itl_values_s=itl["itl_s"], itl_counts=itl["count"], **about["totals"]),
        **tables,
    )
    return record, _read_json(folder / "summary.json")


def _claim(folder: Path) -> None:
    """Make the folder, or make sure that it is empty or an earlier result."""
    if folder.exists() and not folder.is_dir():
        raise ScenarioError(f"{folder}: is a file; a result is saved to a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "facts.json").is_file():
        raise ScenarioError(f"{folder}: holds files that are not a result; give a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)


def _write_table(path: Path, columns: Columns) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {
        name: pa.array(column, pa.string()).dictionary_encode() if column.dtype.kind in "OU" else pa.array(column)
        for name, column in columns.items()
    }
    pq.write_table(pa.table(arrays), path, compression="zstd", version="2.6", row_group_size=1 << 20)


def _read_table(path: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise ScenarioError(f"{path}: not a Parquet file that can be read: {error}") from None
    return {name: _column(table[name]) for name in table.column_names}


def _column(column: Any) -> np.ndarray[Any, Any]:
    """An Arrow column as a NumPy array; equal texts share one string."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return np.asarray(column.to_numpy())
    column = column.unify_dictionaries()
    texts = np.array(column.chunk(0).dictionary.to_pylist() if column.num_chunks else [], dtype=object)
    indices = [chunk.indices.to_numpy() for chunk in column.chunks]
    return texts[np.concatenate(indices)] if indices else texts


def _write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise ScenarioError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ScenarioError(f"{path}: holds {type(value).__name__}, not an object")
    return value
