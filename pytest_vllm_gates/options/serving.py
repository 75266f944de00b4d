"""The options of a run's server: the family, the lane or URL, and the time limits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vllm_gates.options import defaults, kinds
from pytest_vllm_gates.options.record import ALWAYS, option

if TYPE_CHECKING:
    from pytest_vllm_gates.options.names import ClaimedName


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """The server and what it serves. Paths are absolute, times in seconds."""

    rootdir: Path
    """The project's folder, which need not be pytest's rootdir."""
    verbose: bool
    invocation_dir: Path = dataclasses.field(default_factory=Path.cwd)
    """The working folder of pytest's call: relative paths of its arguments start there."""
    test_root: Path | None = None
    """pytest's rootdir, where ids of tests start; None if it is the project's folder."""
    claimed: tuple[ClaimedName, ...] = ()
    """The short names that belong to other plugins in this run."""

    # The server, as in a command that repeats a check.
    models: tuple[str, ...] = option(
        "--model",
        kinds.NAMES,
        "Boot the real server for these families and run the gates: a name, several names with "
        f"commas, or '{defaults.ALL}'. May be repeated.",
        metavar="NAME[,NAME...]",
        default=(),
        wakes=True,
        from_incident=True,
        with_repro=False,
        repeat=ALWAYS,
    )
    lane: str | None = option(
        "--lane",
        kinds.TEXT,
        "The lane (pinned bundle) to serve with.",
        metavar="NAME",
        shown_default="'cuda' if an NVIDIA GPU answers, else 'cpu'",
        from_incident=True,
        other_lane=False,
        repeat=ALWAYS,
    )
    base_url: str | None = option(
        "--base-url",
        kinds.URL,
        "Judge a running server, such as http://host:8000/v1, instead of booting one. "
        f"The API key is read from ${defaults.KEY_VARIABLE}.",
        metavar="URL",
        from_incident=True,
        excludes={"lane": defaults.ONE_SERVER, "against": defaults.NO_LANE},
        repeat=ALWAYS,
    )
    api_key_env: str = option(
        "--api-key-env",
        kinds.VARIABLE,
        "The environment variable with the API key for --base-url.",
        metavar="NAME",
        default=defaults.KEY_VARIABLE,
        shown_default=defaults.KEY_VARIABLE,
        repeat=ALWAYS,
    )
    checkpoint: str | None = option(
        "--checkpoint",
        kinds.TEXT,
        "The weights: a checkpoint from the family file, a local folder, or a Hub id.",
        metavar="NAME",
        shown_default="the lane's, else the family's first",
        from_incident=True,
        repeat=ALWAYS,
    )
    overlay: bool = option(
        "--no-overlay",
        kinds.OFF,
        "Boot without the lane's overlay, which contains its documented repairs.",
        default=True,
        from_incident=True,
        repeat=ALWAYS,
    )
    without_repairs: tuple[str, ...] = option(
        "--without-repair",
        kinds.NAMES,
        "Boot without this repair, or these repairs, of the lane's overlay. May be repeated.",
        metavar="NAME[,NAME...]",
        from_incident=True,
        default=(),
        repeat=ALWAYS,
    )
    boot_timeout_s: float = option(
        "--boot-timeout",
        kinds.SECONDS,
        "Most seconds that a boot may take.",
        metavar="SECONDS",
        default=defaults.BOOT_TIMEOUT_S,
        shown_default=f"{defaults.BOOT_TIMEOUT_S:.0f}",
    )
    stall_timeout_s: float = option(
        "--stall-timeout",
        kinds.SECONDS,
        "Most seconds without a new line in the log of a booting server.",
        metavar="SECONDS",
        default=defaults.STALL_TIMEOUT_S,
        shown_default=f"{defaults.STALL_TIMEOUT_S:.0f}",
    )
    max_response_mib: int = option(
        "--max-response-mib",
        kinds.whole_number(1),
        "Largest answer of the server in MiB; a stream may have twice as many.",
        metavar="N",
        default=defaults.MAX_RESPONSE_MIB,
        shown_default=f"{defaults.MAX_RESPONSE_MIB}",
        repeat=ALWAYS,
    )
    response_timeout_s: float = option(
        "--response-timeout",
        kinds.SECONDS,
        "Most seconds that a stream may take from its first byte to its end.",
        metavar="SECONDS",
        default=defaults.RESPONSE_TIMEOUT_S,
        shown_default=f"{defaults.RESPONSE_TIMEOUT_S:.0f}",
        repeat=ALWAYS,
    )
    keep_server_s: float = option(
        "--keep-server",
        kinds.duration(defaults.LEAST_IDLE_S),
        "Leave vLLM running after the run. The next run with this option reuses it if nothing that "
        f"affects serving changed. It stops after IDLE without requests (default "
        f"{defaults.KEEP_SERVER}). A run with this option never promotes. `vllm-gates servers` "
        "lists and stops such servers.",
        metavar="IDLE",
        default=0.0,
        const=defaults.KEEP_SERVER,
        promotes=False,
    )
