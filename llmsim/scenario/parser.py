"""From a scenario file to a ``Scenario``: the one parser of scenario files."""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmsim.errors import ScenarioError
from llmsim.scenario.settings import apply_settings, parse_settings
from llmsim.scenario.specification import Scenario


def load_scenario(path: str | Path, settings: Iterable[str] = ()) -> Scenario:
    """The scenario of a TOML file, or of the ``scenario.json`` of a result folder.

    ``settings`` are texts ``key=value`` with dotted keys, which replace what the file says:
    ``pools.replicas=2`` for every pool, ``pools.chat.replicas=2`` or ``pools.0.replicas=2`` for one. Relative
    paths start at the folder of the TOML file; in a ``scenario.json`` at the folder its run was started in.

    Raises:
        ScenarioError: with a line for each fault: the file, the key, the value and what is allowed.
    """
    path = Path(path)
    data = apply_settings(_read(path), parse_settings(settings))
    folder = None if path.suffix == ".json" else path.parent
    return Scenario.parse(data, folder, source=str(path))


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: not valid TOML: {error}") from None
    except ValueError as error:
        raise ScenarioError(f"{path}: not a text of the right form: {error}") from None
