"""Writes ``docs/scenario.md``, the reference of scenario files, from their JSON Schema.

    python -m tools.write_scenario_reference [FILE]

Types, defaults, what is allowed and what it means are those of the specifications; the unit is in a key's name. A test
compares the file with what this writes.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmsim.scenario import scenario_schema
from tools.scenario_examples import EXAMPLES

Schema = dict[str, Any]

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "scenario.md"
UNITS = (
    (r"_per_s$", "1/s"),
    (r"_s$", "s"),
    (r"tokens$|^(block_size|max_model_len|long_prefill_token_threshold|low|high|mean|p99|maximum)$", "tokens"),
)
"""Patterns of keys, and their unit."""
INTRODUCTION = """# Scenario files

Every key of a scenario file. This page is written by `python -m tools.write_scenario_reference` from the schema that
also checks the files; `llmsim schema` prints it for editors.

A scenario is TOML. What it leaves out has the default given here, which is vLLM's where vLLM has such a setting. Keys
without a default are required; "absent" means that the key is not written. Relative paths start at the folder of the
file. Units are SI: seconds, bytes, tokens.

`--set` and `--grid` of the commands, and `with_settings` in Python, take the same keys, dotted: `workload.rate_per_s`,
`pools.replicas` (of every pool), `pools.chat.replicas` or `pools.0.replicas` (of one).
"""


@dataclass(slots=True)
class Table:
    """A table of scenario files."""

    path: str
    repeats: bool
    """Whether it is an array of tables."""
    forms: dict[str, Schema]
    """Its form by ``kind``; under "" where there is only one."""
    others: list[str] = field(default_factory=list)
    """Further paths at which a table of these forms may stand."""

    @property
    def title(self) -> str:
        """Its header in a file."""
        if not self.path:
            return "The top of the file"
        return f"`[[{self.path}]]`" if self.repeats else f"`[{self.path}]`"

    @property
    def anchor(self) -> str:
        """Where a link to it leads, as GitHub makes it from the title."""
        return "#" + re.sub(r"[^a-z0-9_ -]", "", self.title.lower()).replace(" ", "-")


class Reference:
    """The tables of a schema, and the page that describes them."""

    def __init__(self, schema: Schema) -> None:
        self._definitions = schema["$defs"]
        self._tables: dict[tuple[str, ...], Table] = {}
        self._collect("", schema)

    def page(self) -> str:
        """The whole page."""
        return "\n".join([INTRODUCTION, *(self._section(table) for table in self._tables.values())])

    def _collect(self, path: str, node: Schema) -> None:
        """The table at ``path`` and those within it, unless tables of this form are known already."""
        forms, repeats = self._forms(node)
        if not forms:
            return
        key = tuple(form["title"] for form in forms.values())
        if key in self._tables:
            self._tables[key].others.append(path)
            return
        self._tables[key] = Table(path, repeats, forms)
        for form in forms.values():
            for name, child in _properties(form):
                self._collect(f"{path}.{name}".lstrip("."), child)

    def _forms(self, node: Schema) -> tuple[dict[str, Schema], bool]:
        """The forms of a table by kind, and whether it is an array of them; none for a single value."""
        node = self._resolved(node)
        if "items" in node:
            return self._forms(node["items"])[0], True
        if "discriminator" in node:
            kinds = node["discriminator"]["mapping"]
            return {kind: self._resolved({"$ref": name}) for kind, name in kinds.items()}, False
        for alternative in node.get("anyOf", ()):
            forms, repeats = self._forms(alternative)
            if forms:
                return forms, repeats
        return ({"": node} if "properties" in node else {}), False

    def _resolved(self, node: Schema) -> Schema:
        while "$ref" in node:
            node = self._definitions[node["$ref"].rpartition("/")[2]]
        return node

    def _section(self, table: Table) -> str:
        lines = [f"## {table.title}", ""]
        if table.others:
            same = ", ".join(f"`{path}`" for path in table.others)
            lines += [f"Of the same form: {same}.", ""]
        for kind, form in table.forms.items():
            if kind:
                lines += [f'### `kind = "{kind}"`', ""]
            if "description" in form:
                lines += [_prose(form["description"]), ""]
            lines += self._rows(form)
        example = next(EXAMPLES[path] for path in (table.path, *table.others) if path in EXAMPLES)
        return "\n".join([*lines, "```toml", example.strip(), "```", ""])

    def _rows(self, form: Schema) -> list[str]:
        """The keys of a form as a table of Markdown."""
        rows = [self._row(name, node, name in form.get("required", ())) for name, node in _properties(form)]
        if not rows:
            return []
        head = ["| key | type | default | unit | allowed | meaning |", "|---|---|---|---|---|---|"]
        return [*head, *rows, ""]

    def _row(self, name: str, node: Schema, required: bool) -> str:
        default = "required" if required else _default(node.get("default"))
        forms, _ = self._forms(node)
        kind = self._type(node, forms)
        unit = next((unit for pattern, unit in UNITS if re.search(pattern, name)), "")
        unit = unit if re.search("number|integer", kind) else ""
        cells = (f"`{name}`", kind, default, unit, _allowed(node), " ".join(_prose(node["description"]).split()))
        return "| " + " | ".join(cells) + " |"

    def _type(self, node: Schema, forms: dict[str, Schema]) -> str:
        if forms:
            table = self._tables[tuple(form["title"] for form in forms.values())]
            return f"[{'tables' if table.repeats else 'table'}]({table.anchor})"
        return " or ".join(dict.fromkeys(_types(self._resolved(node))))


def _properties(form: Schema) -> Iterator[tuple[str, Schema]]:
    """The keys of a form but its kind, the required ones first."""
    required = form.get("required", ())
    for name, node in sorted(form["properties"].items(), key=lambda each: each[0] not in required):
        if name != "kind":
            yield name, node


def _types(node: Schema) -> Iterator[str]:
    """Names of the types of a single value."""
    if "items" in node:
        yield f"array of {node['items']['type']}s"
    for alternative in node.get("anyOf", ()):
        yield from _types(alternative)
    if node.get("type") not in (None, "null", "array"):
        yield "path" if node.get("format") == "path" else node["type"]


def _allowed(node: Schema) -> str:
    """What a single value may be."""
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    of = {**node, **node.get("items", {})}
    texts = [f"{sign} {of[key]:g}" for key, sign in limits.items() if key in of]
    texts += [", ".join(f'`"{value}"`' for value in of["enum"])] if "enum" in of else []
    texts += [f'`"{of["const"]}"`'] if "const" in of else []
    each = [text for alternative in node.get("anyOf", ()) if (text := _allowed(alternative))]
    return " or ".join([", ".join(texts), *each] if texts else each)


def _default(value: Any) -> str:
    """A default as a file would hold it."""
    if value is None:
        return "absent"
    if isinstance(value, dict):
        return f'`kind = "{value["kind"]}"`' if "kind" in value else "its defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _prose(text: str) -> str:
    """A docstring as Markdown."""
    return re.sub(r"([<|])", r"\\\1", text.replace("``", "`").replace("None:", "absent:"))


def main(arguments: list[str]) -> None:
    """Write the page."""
    path = Path(arguments[0]) if arguments else REFERENCE
    path.write_text(Reference(scenario_schema()).page(), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
