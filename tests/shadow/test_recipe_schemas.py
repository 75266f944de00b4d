"""Every recipe has the fields of its kind, by schemas in our words (`crds/`)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

CRDS = Path(__file__).with_name("crds")
RECIPES = sorted((Path(__file__).parents[2] / "docs" / "shadow").glob("*.yaml"))
KUBERNETES = yaml.safe_load((CRDS / "kubernetes.yaml").read_text(encoding="utf-8"))
OWN = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(CRDS.glob("*-*.yaml"))]
KINDS = {
    kind["kind"]["const"]: kind for kind in (*OWN, KUBERNETES["Deployment"], KUBERNETES["Service"])
}
NAME = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
METADATA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        # RFC 1123, as Kubernetes has names
        "name": {"type": "string", "maxLength": 253, "pattern": NAME},
        "namespace": {"type": "string", "maxLength": 63},
    },
}


def validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {**KINDS[kind], "metadata": METADATA},
        "$defs": KUBERNETES["$defs"],
    }
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def documents() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{path.name}: {document['kind']}", document)
        for path in RECIPES
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(
    "document", [each for _, each in documents()], ids=[name for name, _ in documents()]
)
def test_recipe_is_valid_by_the_schema_of_its_kind(document: dict[str, Any]) -> None:
    faults = [
        f"{error.json_path}: {error.message}"
        for error in validator(document["kind"]).iter_errors(document)
    ]
    assert faults == []


def test_every_kind_is_used() -> None:
    assert {document["kind"] for _, document in documents()} == set(KINDS)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every key in a document."""
    if isinstance(value, dict):
        return [
            place
            for key, member in value.items()
            for place in ((*path, key), *places(member, (*path, key)))
        ]
    if isinstance(value, list):
        return [place for at, member in enumerate(value) for place in places(member, (*path, at))]
    return []


FREE = {"matchLabels", "labels", "selector"}
"""Tables whose keys are free."""


@pytest.mark.parametrize(
    "document", [each for _, each in documents()], ids=[name for name, _ in documents()]
)
def test_a_misspelled_field_is_found(document: dict[str, Any]) -> None:
    check = validator(document["kind"])
    for path in places(document):
        if FREE & set(path[:-1]) or (path[-2:-1] == ("metadata",) and len(path) > 2):
            continue
        changed = copy.deepcopy(document)
        table = changed
        for part in path[:-1]:
            table = table[part]
        table[f"{path[-1]}x"] = table.pop(path[-1])
        assert not check.is_valid(changed), f"{json.dumps(path)} may be misspelled"
