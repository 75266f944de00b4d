"""Known failures as data: the lines that identify each, its cause, and how to fix it.

`signatures/<class>.toml` holds the signatures of one class. A project adds its own in
`signatures/*.toml` beside its `pyproject.toml`; one with the id of a shipped one replaces it.

`RULES` are the names of facts of a machine that a signature may use; `diagnosis/machine.py` has a
function for each. A data file that names another rule is refused.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_validator

from pytest_vllm_gates.bounded import patterns
from pytest_vllm_gates.catalog import outside, toml
from pytest_vllm_gates.catalog.toml import nearest
from pytest_vllm_gates.diagnosis import literals
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.bounded.patterns import BoundedPattern

RULES: Mapping[str, str] = {
    "architecture_known": "the lane's vLLM implements the captured `architecture`",
    "architecture_removed": "the lane's vLLM no longer has the captured `architecture`",
    "architecture_unknown": "the lane's vLLM does not implement the captured `architecture`",
    "capability_below_8": "a GPU's compute capability is below 8.0",
    "capability_in_wheel": "torch and vLLM were compiled for every GPU's compute capability",
    "capability_not_in_wheel": "torch or vLLM was not compiled for a GPU's compute capability",
    "container": "the server runs in a container",
    "cpu_lane": "the lane's vLLM is a CPU build",
    "driver_fits": "the driver runs the lane's CUDA",
    "driver_too_old": "the driver is older than the lane's CUDA asks for",
    "few_open_files": "a process may open fewer than 65536 files",
    "gpu_memory_free": "nine tenths of every GPU's memory are free",
    "gpu_memory_taken": "more than a tenth of a GPU's memory is taken",
    "little_host_memory": "less than a tenth of the machine's memory is available",
    "model_type_known": "the lane's transformers knows the captured `model_type`",
    "model_type_unknown": "the lane's transformers does not know the captured `model_type`",
    "no_gpu": "no NVIDIA GPU answers",
    "no_hub_token": "no token for the Hugging Face Hub is set",
    "hub_offline": "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set",
    "one_gpu": "one GPU answers",
    "package_absent": "no installed package is named as the captured `package`",
    "package_fits": "the captured `package` is as those that declare it want it",
    "packages_disagree": "an installed package's requirement is not met",
    "requirements_met": "every installed package's requirements are met",
    "sm_12x": "a GPU has compute capability 12.0 or 12.1 (RTX 50, RTX PRO, DGX Spark)",
    "spark": "a GPU is a DGX Spark's (GB10, compute capability 12.1, unified memory)",
    "small_shared_memory": "less than 1 GiB of shared memory",
    "unified_memory": "a GPU shares the machine's memory",
}
FOLDER = "signatures"
SHIPPED = Path(__file__).parent.parent / FOLDER
Phase = Literal["install", "load", "warm-up", "serving", "client", "unknown"]
Kind = Literal["failure", "warning", "wrapper"]
ID = re.compile(r"[A-Z][A-Z0-9_]*")
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


def compiled(pattern: str) -> BoundedPattern:
    """Return a pattern compiled; raises `ValueError` that quotes it.

    It must have a literal piece, by which lines are found that it could match.
    """
    regex = patterns.checked(pattern)
    if regex.search(""):
        raise ValueError(f"{pattern!r} matches an empty line, and so every line")
    literals.required(pattern)
    return regex


def placeholders(text: str) -> set[str]:
    """Return the names of the captures a text asks for."""
    return set(PLACEHOLDER.findall(text))


class Source(toml.Record):
    """Where a text stands in released software, as a file and a literal piece of it."""

    package: str
    file: str
    text: str


class LineConditions(toml.Record):
    """What must hold around a matching line; each list is met by any of its patterns."""

    after: tuple[str, ...] = ()
    not_after: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    not_near: tuple[str, ...] = ()
    within: int = Field(default=40, ge=1, le=1000)
    """Lines before or after."""
    either: bool = False
    """Whether a line of `after` is enough without one of `near`, and the other way round."""
    exit_status: tuple[int, ...] = ()

    @field_validator("after", "not_after", "near", "not_near")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            compiled(pattern)
        return patterns

    @property
    def conditions(self) -> int:
        """How many conditions are given."""
        conditions = (self.after, self.not_after, self.near, self.not_near, self.exit_status)
        return sum(1 for pair in conditions if pair)


class ShownFix(toml.Record):
    """A fix that the log or the machine asks for: it is said before all others."""

    fix: str
    seen: tuple[str, ...] = ()
    """Patterns of which the failure's own line has to match any."""
    machines: tuple[str, ...] = ()
    """Names of rules of which any has to hold; the log's own word on the GPU counts, too."""

    @field_validator("seen")
    @classmethod
    def _are_patterns(cls, seen: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in seen:
            patterns.checked(pattern)
        return seen

    @model_validator(mode="after")
    def _has_a_reason(self) -> ShownFix:
        if not self.seen and not self.machines:
            raise ValueError(f"{self.fix!r} has neither `seen` nor `machines` to be said for")
        if unknown := sorted({*self.machines} - RULES.keys()):
            raise ValueError(f"{unknown[0]!r} is no rule about machines")
        return self


class SignatureText(toml.Record):
    """What is said; `{name}` stands for a capture."""

    cause: str
    cause_plain: str = ""
    """Said instead where a capture of `cause` is missing."""
    fixes: tuple[str, ...] = Field(min_length=1)
    """Most likely first; one that misses a capture is left out."""
    shown: tuple[ShownFix, ...] = ()


class MachineRules(toml.Record):
    """Names of what a machine may say for or against it."""

    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()

    @field_validator("supports", "contradicts")
    @classmethod
    def _are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in RULES:
                guess = nearest(name, RULES)
                hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(sorted(RULES))}"
                raise ValueError(f"{name!r} is no rule about machines; {hint}")
        return names


class Signature(toml.Record):
    """One known failure."""

    id: str
    title: toml.Sentence
    phase: Phase
    kind: Kind = "failure"
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched in a line without its prefixes; any one is enough."""
    sources: tuple[Source, ...] = ()
    references: tuple[str, ...] = ()
    warned: bool = False
    """Whether it is the cause also where it is printed as no more than a warning."""
    weak: tuple[str, ...] = ()
    """Patterns that alone make no answer certain: several failures print them."""
    infrastructure: bool = False
    """Whether it says nothing of the bundle: a full disk, a taken port, a Hub out of reach."""
    when: LineConditions = LineConditions()
    text: SignatureText
    machine: MachineRules = MachineRules()

    @field_validator("id")
    @classmethod
    def _is_an_id(cls, name: str) -> str:
        if not ID.fullmatch(name):
            raise ValueError("an id is written in capitals, as OOM_LOAD")
        return name

    @field_validator("patterns")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            compiled(pattern)
        return patterns

    @model_validator(mode="after")
    def _can_be_said(self) -> Signature:
        if stray := sorted({*self.weak} - {*self.patterns}):
            raise ValueError(f"{self.id}: {stray[0]!r} of `weak` is none of its patterns")
        if not self.patterns and not self.when.exit_status:
            raise ValueError(f"{self.id} has neither patterns nor an exit status to know it by")
        groups = [set(patterns.checked(pattern).groupindex) for pattern in self.patterns]
        anywhere, everywhere = set[str]().union(*groups), set.intersection(*groups or [set()])
        text = self.text
        for template in (text.cause, *text.fixes, *(shown.fix for shown in text.shown)):
            for name in sorted(placeholders(template) - anywhere):
                guess = nearest(name, anywhere)
                hint = f"; did you mean {guess!r}?" if guess else ""
                raise ValueError(f"{self.id}: no pattern captures {{{name}}}{hint}")
        if placeholders(text.cause) - everywhere and not text.cause_plain:
            raise ValueError(
                f"{self.id}: its cause needs captures that not every pattern has: add cause_plain"
            )
        if placeholders(text.cause_plain):
            raise ValueError(f"{self.id}: cause_plain is for lines without captures")
        if all(placeholders(fix) - everywhere for fix in text.fixes):
            raise ValueError(f"{self.id}: no fix can be said of every pattern's line")
        return self


class SignatureClass(toml.Record):
    """One file: a class of failures, as people call it."""

    name: str
    """The file's, without `.toml`."""
    title: str
    signatures: tuple[Signature, ...] = ()

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of its signatures."""
        return tuple(signature.id for signature in self.signatures)


def load_all(project: Path | None = None) -> tuple[SignatureClass, ...]:
    """Read the shipped classes and a project's own, whose signatures replace shipped ones by id.

    Raises `UserError` for a fault in a file, and for an id that is given twice.
    """
    shipped = _read(SHIPPED)
    project_classes = _read(project / FOLDER) if project else {}
    replaced = {name for class_ in project_classes.values() for name in class_.ids}
    shipped_classes = [
        class_.model_copy(
            update={
                "signatures": tuple(
                    signature for signature in class_.signatures if signature.id not in replaced
                )
            }
        )
        if replaced & set(class_.ids)
        else class_
        for class_ in shipped.values()
    ]
    return tuple(
        class_ for class_ in (*shipped_classes, *project_classes.values()) if class_.signatures
    )


def _read(folder: Path) -> Mapping[Path, SignatureClass]:
    classes: dict[Path, SignatureClass] = {}
    path_of_id: dict[str, Path] = {}
    for path in sorted(folder.glob("*.toml")):
        classes[path] = outside.load(path, SignatureClass, name=path.stem)
        for name in classes[path].ids:
            if name in path_of_id:
                raise UserError(f"{path}: the id {name!r} is given in {path_of_id[name]} too")
            path_of_id[name] = path
    return classes
