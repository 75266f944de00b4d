"""Known failures as data: the lines that identify each, its cause, and how to fix it.

`signatures/<class>.toml` has the signatures of one class. A project adds its own in
`signatures/*.toml` beside its `pyproject.toml`; a signature with a shipped id replaces that one.

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
    "driver_too_old": "the driver is older than the lane's CUDA requires",
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
    "package_absent": "no installed package has the name of the captured `package`",
    "package_fits": "the captured `package` meets the requirements of the packages that declare it",
    "packages_disagree": "an installed package's requirement is not met",
    "requirements_met": "every installed package's requirements are met",
    "sm_12x": "a GPU has compute capability 12.0 or 12.1 (RTX 50, RTX PRO, DGX Spark)",
    "spark": "a GPU belongs to a DGX Spark (GB10, compute capability 12.1, unified memory)",
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

    It must have a literal piece: lines that it could match are found by that piece.
    """
    regex = patterns.checked(pattern)
    if regex.search(""):
        raise ValueError(f"{pattern!r} matches an empty line, and so every line")
    literals.required(pattern)
    return regex


def placeholders(text: str) -> set[str]:
    """Return the names of the captures that a text uses."""
    return set(PLACEHOLDER.findall(text))


class Source(toml.Record):
    """The place of a text in released software: a file and a literal piece of it."""

    package: str
    file: str
    text: str


class LineConditions(toml.Record):
    """Conditions for the lines around a match; any pattern of a list meets that list."""

    after: tuple[str, ...] = ()
    not_after: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    not_near: tuple[str, ...] = ()
    within: int = Field(default=40, ge=1, le=1000)
    """Lines before or after."""
    either: bool = False
    """Whether a line of `after` is enough without one of `near`, and vice versa."""
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
    """A fix that the log or the machine suggests: it is shown before all others."""

    fix: str
    seen: tuple[str, ...] = ()
    """Patterns; the failure's own line has to match one of them."""
    machines: tuple[str, ...] = ()
    """Names of rules, one of which has to be met; the log's report of the GPU counts too."""

    @field_validator("seen")
    @classmethod
    def _are_patterns(cls, seen: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in seen:
            patterns.checked(pattern)
        return seen

    @model_validator(mode="after")
    def _has_a_reason(self) -> ShownFix:
        if not self.seen and not self.machines:
            raise ValueError(
                f"{self.fix!r} has neither `seen` nor `machines`: add the condition for showing it"
            )
        if unknown := sorted({*self.machines} - RULES.keys()):
            raise ValueError(f"{unknown[0]!r} is not a rule about machines")
        return self


class SignatureText(toml.Record):
    """The texts to show; a capture replaces `{name}`."""

    cause: str
    cause_plain: str = ""
    """Shown instead if a capture of `cause` is missing."""
    fixes: tuple[str, ...] = Field(min_length=1)
    """Most likely first; a fix without its capture is left out."""
    shown: tuple[ShownFix, ...] = ()


class MachineRules(toml.Record):
    """Names of rules about the machine that support or contradict a signature."""

    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()

    @field_validator("supports", "contradicts")
    @classmethod
    def _are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in RULES:
                guess = nearest(name, RULES)
                hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(sorted(RULES))}"
                raise ValueError(f"{name!r} is not a rule about machines; {hint}")
        return names


class Signature(toml.Record):
    """One known failure."""

    id: str
    title: toml.Sentence
    phase: Phase
    kind: Kind = "failure"
    patterns: tuple[str, ...] = ()
    """Regular expressions, searched in a line without its prefixes; one match is enough."""
    sources: tuple[Source, ...] = ()
    references: tuple[str, ...] = ()
    warned: bool = False
    """Whether it is the cause even if it is only printed as a warning."""
    weak: tuple[str, ...] = ()
    """Patterns that alone do not make an answer certain: several failures print them."""
    infrastructure: bool = False
    """Whether the bundle is not the cause: a full disk, a taken port, an unreachable Hub."""
    when: LineConditions = LineConditions()
    text: SignatureText
    machine: MachineRules = MachineRules()

    @field_validator("id")
    @classmethod
    def _is_an_id(cls, name: str) -> str:
        if not ID.fullmatch(name):
            raise ValueError("an id is written in capitals, for example OOM_LOAD")
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
            raise ValueError(f"{self.id}: {stray[0]!r} in `weak` is not one of its patterns")
        if not self.patterns and not self.when.exit_status:
            raise ValueError(f"{self.id} has neither patterns nor an exit status: add one of them")
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
            raise ValueError(
                f"{self.id}: every fix needs a capture that not every pattern has: add one without"
            )
        return self


class SignatureClass(toml.Record):
    """One file: a class of failures, by its common name."""

    name: str
    """The file's name without `.toml`."""
    title: str
    signatures: tuple[Signature, ...] = ()

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of its signatures."""
        return tuple(signature.id for signature in self.signatures)


def load_all(project: Path | None = None) -> tuple[SignatureClass, ...]:
    """Read the shipped classes and the project's; its signatures replace shipped ones by id.

    Raises `UserError` for a fault in a file, and for a duplicate id.
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
                raise UserError(
                    f"{path}: the id {name!r} is also in {path_of_id[name]}: rename one of them"
                )
            path_of_id[name] = path
    return classes
