"""The options of a run's server: which family is served, by what, and how long it may take."""

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
    """What is served. Paths are absolute, times in seconds."""

    rootdir: Path
    """The project's folder, which need not be pytest's rootdir."""
    verbose: bool
    invocation_dir: Path = dataclasses.field(default_factory=Path.cwd)
    """Where pytest was called: relative paths of its arguments start there."""
    test_root: Path | None = None
    """pytest's rootdir, where ids of tests start; None where it is the project's folder."""
    claimed: tuple[ClaimedName, ...] = ()
    """The short names that belong to other plugins in this run."""

    # The server, as a command that repeats a check names it.
    models: tuple[str, ...] = option(
        "--model",
        kinds.NAMES,
        "Boot the real server for these families and run the gates: a name, several with commas, "
        f"or '{defaults.ALL}'. May be repeated.",
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
        "The pinned bundle that serves.",
        metavar="NAME",
        shown_default="'cuda' where an NVIDIA GPU answers, else 'cpu'",
        from_incident=True,
        other_lane=False,
        repeat=ALWAYS,
    )
    base_url: str | None = option(
        "--base-url",
        kinds.URL,
        "Judge a server that already runs, such as http://host:8000/v1; nothing is booted. "
        f"The key is read from ${defaults.KEY_VARIABLE}.",
        metavar="URL",
        from_incident=True,
        excludes={"lane": defaults.ONE_SERVER, "against": defaults.NO_LANE},
        repeat=ALWAYS,
    )
    api_key_env: str = option(
        "--api-key-env",
        kinds.VARIABLE,
        "The environment variable that holds the key for --base-url.",
        metavar="NAME",
        default=defaults.KEY_VARIABLE,
        shown_default=defaults.KEY_VARIABLE,
        repeat=ALWAYS,
    )
    checkpoint: str | None = option(
        "--checkpoint",
        kinds.TEXT,
        "The weights: a checkpoint the family file names, a local folder, or a Hub id.",
        metavar="NAME",
        shown_default="the lane's, else the family's first",
        from_incident=True,
        repeat=ALWAYS,
    )
    overlay: bool = option(
        "--no-overlay",
        kinds.OFF,
        "Boot without the lane's overlay of documented repairs.",
        default=True,
        from_incident=True,
        repeat=ALWAYS,
    )
    without_repairs: tuple[str, ...] = option(
        "--without-repair",
        kinds.NAMES,
        "Boot without this repair of the lane's overlay, or these. May be repeated.",
        metavar="NAME[,NAME...]",
        from_incident=True,
        default=(),
        repeat=ALWAYS,
    )
    boot_timeout_s: float = option(
        "--boot-timeout",
        kinds.SECONDS,
        "Seconds a boot may take.",
        metavar="SECONDS",
        default=defaults.BOOT_TIMEOUT_S,
        shown_default=f"{defaults.BOOT_TIMEOUT_S:.0f}",
    )
    stall_timeout_s: float = option(
        "--stall-timeout",
        kinds.SECONDS,
        "Seconds a booting server's log may stay silent.",
        metavar="SECONDS",
        default=defaults.STALL_TIMEOUT_S,
        shown_default=f"{defaults.STALL_TIMEOUT_S:.0f}",
    )
    max_response_mib: int = option(
        "--max-response-mib",
        kinds.whole_number(1),
        "MiB an answer of the server may have, a stream twice as many.",
        metavar="N",
        default=defaults.MAX_RESPONSE_MIB,
        shown_default=f"{defaults.MAX_RESPONSE_MIB}",
        repeat=ALWAYS,
    )
    response_timeout_s: float = option(
        "--response-timeout",
        kinds.SECONDS,
        "Seconds a stream may take from its first byte to its end.",
        metavar="SECONDS",
        default=defaults.RESPONSE_TIMEOUT_S,
        shown_default=f"{defaults.RESPONSE_TIMEOUT_S:.0f}",
        repeat=ALWAYS,
    )
    keep_server_s: float = option(
        "--keep-server",
        kinds.duration(defaults.LEAST_IDLE_S),
        "Leave the server up for the next run that asks for the same with this option. It stops "
        f"after IDLE without requests, after {defaults.KEEP_SERVER} if IDLE is left out. Such a "
        "run never promotes. `vllm-gates servers` lists and stops them.",
        metavar="IDLE",
        default=0.0,
        const=defaults.KEEP_SERVER,
        promotes=False,
    )
