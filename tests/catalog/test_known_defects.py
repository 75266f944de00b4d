"""Known defects are read strictly, and an entry must be complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_vllm_gates.catalog import (
    conversation,
    family as families,
    known_defects,
    matrix,
    outside,
)
from pytest_vllm_gates.catalog.known_defects import NAME, KnownDefect, KnownDefects
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.features import catalog as feature_catalog
from pytest_vllm_gates.server import fallbacks
from pytest_vllm_gates.vision import encodings, refused

NOWHERE = Path("/nowhere")
ENTRY = {
    "check": '"streamed_answer_equals_the_whole"',
    "what": '"text is lost"',
    "versions": '">=0.30,<0.34"',
    "reference": '"vllm-project/vllm#1"',
    "shows": '"^content"',
}
TOPICS = {topic.name for topic in fallbacks.load()}
FEATURES = {feature.name for feature in feature_catalog.load()}


def write_defects(folder: Path, **changes: str | None) -> Path:
    fields = {name: value for name, value in {**ENTRY, **changes}.items() if value is not None}
    lines = [f"{name} = {value}" for name, value in fields.items()]
    (folder / NAME).write_text("\n".join(["[[known_defects]]", *lines]))
    return folder


def test_project_entries_follow_the_shipped_ones(tmp_path: Path) -> None:
    shipped = known_defects.load_all(NOWHERE)
    defects = known_defects.load_all(write_defects(tmp_path))
    assert defects[: len(shipped)] == shipped
    assert defects[len(shipped) :] == (
        KnownDefect(
            check="streamed_answer_equals_the_whole",
            what="text is lost",
            versions=">=0.30,<0.34",
            reference="vllm-project/vllm#1",
            shows="^content",
        ),
    )


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"versions": '"0.30 to 0.34"'}, "'0.30 to 0.34' is not a set of versions, such as"),
        ({"shows": '"(content"'}, "'(content' is not a regular expression: missing )"),
        ({"shows": None}, "shows"),
        ({"reference": None}, "reference"),
        ({"when": "{ stop = 'never' }"}, "when.stop"),
        ({"wen": "{}"}, "did you mean 'when'"),
        ({"check": "7"}, "check"),
    ],
)
def test_invalid_entry_is_reported_with_its_file(
    tmp_path: Path, changes: dict[str, str | None], complaint: str
) -> None:
    with pytest.raises(UserError) as caught:
        known_defects.load_all(write_defects(tmp_path, **changes))
    assert complaint in str(caught.value)
    assert str(tmp_path / NAME) in str(caught.value)


GATES = Path(known_defects.__file__).parent.parent / "gates"
CHECKS = {
    name
    for file in GATES.glob("test_*.py")
    for name in re.findall(r"^def test_(\w+)", file.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("path", sorted(known_defects.SHIPPED.glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_file_lists_defects_of_its_own_gate(path: Path) -> None:
    text = (GATES / f"test_{path.stem}.py").read_text()
    entries = outside.load(path, KnownDefects).known_defects
    assert entries
    assert [entry.check for entry in entries if f"def test_{entry.check}(" not in text] == []


SHAPES = {shape.name for shape in (*conversation.shapes(), *conversation.load_all(NOWHERE))}
PICTURES = {
    *(picture.name for picture in encodings.every()),
    *(name for _, name, _ in (*refused.bad_files({}), *refused.addresses())),
    refused.private_address("")[1],
}
DIALECTS = ("completions", "responses", "messages", "v1/", "tokenize")
TOOLS_BESIDES = {"other"}
"""Values of `tools` outside the matrix: a named tool that is not the first."""
VALUES = {
    "shape": SHAPES, "topic": TOPICS, "picture": PICTURES, "compilation": {"on", "off"},
    "mode": {"whole", "stream", "count", "stored"},
}  # fmt: skip
"""The values of traits outside the matrix."""
SHIPPED = [
    *known_defects.load_all(NOWHERE),
    *(defect for family in families.load_all(NOWHERE) for defect in family.known_defects),
]


@pytest.mark.parametrize(
    "known_defect", SHIPPED, ids=[f"{defect.check}-{defect.shows}" for defect in SHIPPED]
)
def test_shipped_entry_names_an_existing_check_and_traits(known_defect: KnownDefect) -> None:
    assert known_defect.check in CHECKS
    assert re.search(r"#\d+|seen on vLLM \d", known_defect.reference)
    dimensions = matrix.load().dimensions
    for name, values in known_defect.when.items():
        if name == "turns":  # a conversation outside the matrix has its own name
            assert set(values) <= {*dimensions[name], *SHAPES}
        elif name in dimensions:
            assert set(values) <= {*dimensions[name], *TOOLS_BESIDES}
        elif name in VALUES:
            assert set(values) <= VALUES[name]
        elif name in FEATURES:
            assert values == ("on",)
        elif name == "dialect":
            assert all(value.strip("/").startswith(DIALECTS) for value in values)
        else:
            assert name in (
                "case", "text", "call", "answer", "choices", "parameter", "strict", "delta", "end"
            )  # fmt: skip
