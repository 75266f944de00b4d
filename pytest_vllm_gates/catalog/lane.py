"""A lane: one pinned bundle that serves models, read from `lanes/<name>.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from pytest_vllm_gates.catalog import (
    headers as request_headers,
    of_release,
    outside,
    plans,
    releases,
    toml,
)
from pytest_vllm_gates.catalog.expects import Expects
from pytest_vllm_gates.catalog.scales import NumericScales
from pytest_vllm_gates.catalog.toml import choose
from pytest_vllm_gates.errors import UserError

SHIPPED = Path(__file__).parent.parent / "lanes"

# TOML has only lists; a frozen record stores them as tuples.
Words = Annotated[tuple[str, ...], Field(strict=False)]

SUFFIX = ".toml"
ATTACHED = "base-url"
"""The name of the lane that is a running server's URL."""
FORMS = ("python", "lock", "command", "base_url")

# Keys for making a lock's environment.
MAKING = ("python_version", "requires_python", "torch_backend")
# Keys for resolving a lock.
RELEASE = ("vllm", "device")
# Keys for reaching a running server.
REACHING = ("api_key_env", "headers", "verify")
# Keys that have no effect in a lane of this form.
IDLE = {
    "python": (*MAKING, *RELEASE, *REACHING),
    "lock": REACHING,
    "command": (*MAKING, *RELEASE, *REACHING),
    "base_url": (*MAKING, *RELEASE, "overlay", "env", "start", "waive", "lora_modules"),
}
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class StartCommand(toml.Record):
    """How to start this lane's vLLM: the interpreter's arguments before the flags.

    The default is the entry point every release so far has; from 0.30 on it is deprecated in
    favour of `vllm.entrypoints.launchers`, which the shipped lanes name. A lane with `vllm` has
    the entry points of its release.
    """

    server: Words = ("-m", "vllm.entrypoints.openai.api_server")
    renderer: Words | None = None


class Lane(toml.Record):
    """One pinned bundle. Exactly one of `python`, `lock`, `command` and `base_url` is given."""

    name: toml.Name
    file: Path
    title: toml.Sentence
    vllm: str | None = None
    """The release that a lock is resolved for; keys that the lane leaves out get this release's
    values from `data/releases.toml`."""
    device: releases.DeviceName | None = None
    """The device that the lock is for; by default this machine's."""
    python: str | None = None
    lock: str | None = None
    command: Words | None = None
    base_url: str | None = None
    served_model_name: str | None = None
    """The model name of a command's server that does not accept vLLM's flags: it gets no flags, and
    need not have `/health`."""

    api_key_env: Variable | None = None
    """The environment variable with this server's API key; instead of --api-key-env."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of every request to this server; `${NAME}` in a value is an environment variable."""
    verify: bool | str = True
    """How the server's certificate is checked: with the usual authorities, not at all, or with the
    authorities of this file or folder."""

    python_version: Annotated[str, Field(pattern=r"^3\.\d+(\.\d+)?$")] | None = None
    """The Python version of the lock's environment, wherever this machine has it: the bundle does
    not depend on the Python that runs pytest."""
    requires_python: str | None = None
    """The Python versions to use if that one is missing."""
    torch_backend: str | None = None
    checkpoint: str | None = None
    overlay: str | None = None
    env: dict[str, str] = Field(default_factory=dict)
    serve: dict[str, Any] = Field(default_factory=dict)
    """vLLM's flags; for a running server, the known ones."""
    lora_modules: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Your LoRA adapters by name, each a folder in PEFT's format, relative to the lane's folder.
    `--features lora` serves them instead of the miniature's. A lane's permanent adapters are in
    `serve`."""
    start: StartCommand = StartCommand()
    expects: Expects = Expects()
    waive: dict[str, str] = Field(default_factory=dict)
    """Preflight checks whose failure is accepted here, each with the reason."""
    batch_invariant: bool = False
    """Whether an answer's tokens do not depend on concurrent requests and cached prefixes. Kernels
    whose order of sums depends on the batch differ; there an equally likely answer is enough."""

    load: dict[str, Any] = Field(default_factory=dict)
    """Changes of this lane's load plan to `load.toml` and the family."""
    throughput: dict[str, Any] = Field(default_factory=dict)
    """Changes of this lane's throughput plan to `throughput.toml` and the family."""
    numerics: NumericScales = NumericScales()

    @model_validator(mode="after")
    def _plans(self) -> Lane:
        plans.planned_traffic(self.load)
        plans.planned_throughput(self.throughput)
        return self

    @model_validator(mode="after")
    def _one_form(self) -> Lane:
        forms = [form for form in FORMS if getattr(self, form) is not None]
        if len(forms) != 1:
            raise ValueError(
                f"a lane is exactly one of {', '.join(FORMS)}; this one has "
                f"{' and '.join(forms) or 'none of them'}"
            )
        if self.served_model_name is not None and self.command is None:
            raise ValueError(
                "served_model_name here is for a command that does not accept vLLM's flags; "
                "otherwise set it as a flag in [serve]"
            )
        if wrong := [*request_headers.faults(self.headers)]:
            raise ValueError("; ".join(wrong))
        if self.api_key_env and request_headers.has(self.headers, request_headers.AUTHORIZATION):
            raise ValueError("api_key_env and the header Authorization both set the key; keep one")
        idle = [key for key in IDLE[forms[0]] if key in self.model_fields_set]
        if idle:
            raise ValueError(
                f"{', '.join(idle)} has no effect in a lane that has {forms[0]}; leave it out"
            )
        return self

    @property
    def form(self) -> str:
        """The form of this lane, one of four."""
        return next(form for form in FORMS if getattr(self, form) is not None)

    @property
    def lock_path(self) -> Path | None:
        """The lock file: beside the lane's TOML, else a shipped one."""
        return self._resolved(self.lock) if self.lock else None

    @property
    def overlay_path(self) -> Path | None:
        """The overlay folder: beside the lane's TOML, else a shipped one."""
        return self._resolved(self.overlay) if self.overlay else None

    @property
    def authorities(self) -> bool | str:
        """`verify`, with the path of a file of authorities relative to the lane's folder."""
        if isinstance(self.verify, bool):
            return self.verify
        return str(self.file.parent / Path(self.verify).expanduser())

    def _resolved(self, name: str) -> Path:
        beside, shipped = self.file.parent / name, SHIPPED / name
        return shipped if shipped.exists() and not beside.exists() else beside


def files(project: Path) -> dict[str, Path]:
    """Return every lane's file by name; the project's own `lanes/*.toml` override the shipped."""
    return {
        path.stem: path
        for folder in (SHIPPED, project / "lanes")
        for path in sorted(folder.glob("*.toml"))
    }


def read(path: Path, name: str, file: Path) -> Lane:
    """Read a lane's file, and complete a lane of a release; `file` is its assumed path.

    Files that it names are not checked. Raises `UserError` for a faulty file.
    """
    text, table = outside.read(path)
    if "vllm" in table:
        table = of_release.completed(file, table)
    return toml.validated(path, text, {**table, "name": name, "file": file}, Lane)


def _named_file(name: str) -> Path:
    file = Path(name).expanduser().absolute()
    if not file.is_file():
        raise UserError(f"{name}: lane file not found\nlist the lanes: vllm-gates lane list")
    return file


def load(name: str, project: Path) -> Lane:
    """Read the lane called `name`, or a lane's file by its path (`out/mine.toml`).

    Raises `UserError` for an unknown name or a faulty file.
    """
    if name.endswith(SUFFIX):
        file = _named_file(name)
        name = file.stem
    else:
        lane_files = files(project)
        name = choose("lane", name, lane_files)
        file = lane_files[name]
    lane = read(file, name, file)
    start = lane.start
    for key, words in {"command": lane.command, "start.server": start.server,
                       "start.renderer": start.renderer}.items():  # fmt: skip
        if words is not None and not words:
            raise UserError(f"{lane.file}: {key} is empty: expected a program and its arguments")
    if lane.lock_path is not None and not lane.lock_path.is_file() and lane.vllm is None:
        source = lane.lock_path.with_suffix(".in")
        raise UserError(
            f"{lane.file}: the lock {str(lane.lock_path)!r} does not exist\n"
            f"make it: python -m pytest_vllm_gates.environment.relock {source}"
        )
    if lane.overlay_path is not None and not lane.overlay_path.is_dir():
        raise UserError(f"{lane.file}: the overlay {str(lane.overlay_path)!r} is not a folder")
    if isinstance(lane.authorities, str) and not Path(lane.authorities).exists():
        raise UserError(
            f"{lane.file}: verify names the certificates of {lane.authorities!r}, which do not "
            "exist: name a PEM file of certificate authorities, or true"
        )
    return lane
