"""Where packages come from: pip's configured sources, said in uv's words.

uv does not read pip's configuration. Whoever configured pip (a mirror, an air gap, a folder of
wheels, a certificate) configured it for this machine, so uv is told the same.
"""

from __future__ import annotations

import configparser
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What uv calls each of pip's settings, and what separates its values.
WORDS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "proxy": ("ALL_PROXY", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}

# A person who set one of these has told uv itself; pip's setting is then left alone.
SAID_TO_UV = {
    "UV_DEFAULT_INDEX": ("UV_INDEX_URL",),
    "UV_INDEX": ("UV_EXTRA_INDEX_URL",),
    "ALL_PROXY": ("all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"),
}

# These would change what is installed or where, which is the lane's to say.
NOT_HANDED_ON = frozenset({
    "CONDA_PREFIX", "UV_BREAK_SYSTEM_PACKAGES", "UV_BUILD_CONSTRAINT", "UV_CONSTRAINT",
    "UV_EXCLUDE", "UV_EXCLUDE_NEWER", "UV_OVERRIDE", "UV_PRERELEASE", "UV_PROJECT", "UV_PYTHON",
    "UV_REQUIRE_HASHES", "UV_RESOLUTION", "UV_SYSTEM_PYTHON", "UV_TORCH_BACKEND",
    "UV_WORKING_DIR", "VIRTUAL_ENV",
})  # fmt: skip


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the configuration files pip reads on Linux and macOS, the weakest first."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path(environ.get("HOME", "~")).expanduser()
    system = [
        Path(folder) / "pip"
        for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
        if folder
    ]
    user = [home / ".pip", Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip"]
    if sys.platform == "darwin":
        system = [Path("/Library/Application Support/pip")]
        user.append(home / "Library" / "Application Support" / "pip")
    folders = [*system, Path("/etc"), *([] if named else user), Path(sys.prefix)]
    return [*(folder / "pip.conf" for folder in folders), *([Path(named)] if named else [])]


def pip_settings(files: Iterable[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings for installing: files, then `PIP_*`, the later one winning."""
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself will say so; what other files hold still counts
        for section, found in sections.items():
            if parser.has_section(section):
                found.update((_key(name), value) for name, value in parser.items(section))
    said = {_key(name[4:]): value for name, value in environ.items() if name.startswith("PIP_")}
    settings = {**sections["global"], **sections["install"], **said}
    if "default-timeout" in settings:
        settings.setdefault("timeout", settings["default-timeout"])
    return {name: value for name, value in settings.items() if value.strip()}


def for_uv(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the environment and the arguments that hand pip's sources on to uv.

    In the environment wherever uv allows it, since an index's URL may hold a password.
    """
    settings = pip_settings(pip_files(environ), environ)
    result = {name: value for name, value in environ.items() if name not in NOT_HANDED_ON}
    for setting, (word, separator) in WORDS.items():
        if setting in settings and not any(
            result.get(name) for name in (word, *SAID_TO_UV.get(word, ()))
        ):
            result[word] = separator.join(settings[setting].split())
    # pip takes the best version of any of its sources; with every version pinned the strategy
    # only decides whether a source that lacks the version ends the search.
    result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    no_index = settings.get("no-index", "").lower() in {"1", "true", "yes", "on", "y", "t"}
    return result, ["--no-index"] if no_index else []


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")
