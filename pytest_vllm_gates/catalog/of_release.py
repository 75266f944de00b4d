"""A lane that names a release of vLLM, completed: start, flags, variables, overlay, lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates import data
from pytest_vllm_gates.catalog import outside, releases, toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

SHIPPED = Path(__file__).parent.parent / "lanes"
DEFAULTS = data.FOLDER / "lane_defaults.toml"
OVERLAY_SWITCH = "VLLM_GATES_WITHOUT_REPAIRS"
DEVICE_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def device_here() -> releases.DeviceName:
    """Return this machine's device: `cuda` if the files of NVIDIA's driver exist."""
    return "cuda" if any(path.exists() for path in DEVICE_FILES) else "cpu"


def completed(file: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a lane with `vllm`, with the missing keys filled in.

    The lane's keys come first, then its release's needs, then the device's defaults.
    Raises `UserError` for an invalid release or device.
    """
    version, device = table["vllm"], table.get("device") or device_here()
    if not isinstance(version, str):
        raise UserError(f'{file}: vllm = {version!r}: expected a release in quotes, as "0.32.0"')
    name = toml.choose("device", str(device), releases.table().devices)
    result = defaults(version, name)
    result |= {"title": f"vLLM {version} on {NAMES[name]}", "device": name}
    result.setdefault("lock", f"{file.stem}-{name}.txt")
    for key, value in table.items():
        own = result.get(key)
        if key in MERGED and isinstance(value, dict) and isinstance(own, dict):
            # A dash and an underscore spell the same flag.
            spelled = {name.replace("-", "_"): word for name, word in value.items()}
            result[key] = own | (spelled if key == "serve" else value)
        else:
            result[key] = value
    return result


NAMES = {"cpu": "the CPU", "cuda": "an NVIDIA GPU"}
MERGED = ("env", "serve")


def defaults(version: str, device: str) -> dict[str, Any]:
    """Return the defaults of a lane of a release on a device."""
    shipped = _device_defaults(device)
    result = {**shipped}
    start = releases.start(version)
    result["start"] = {"server": list(start.server)}
    if start.renderer:
        result["start"]["renderer"] = list(start.renderer)
    result["serve"], _ = releases.translated(shipped.get("serve", {}), version)
    for each in releases.needed(version, device):
        result["serve"] |= each.serve
    left_out = releases.repairs_left_out(version, [each.name for each in releases.table().repairs])
    if left_out and "overlay" in result:
        result["env"] = {**result.get("env", {}), OVERLAY_SWITCH: ",".join(left_out)}
    return result


def remarks(version: str, device: str) -> list[str]:
    """Return, in words, the device's flags that a release does not accept."""
    return releases.translated(_device_defaults(device).get("serve", {}), version)[1]


def _device_defaults(device: str) -> dict[str, Any]:
    """Return the defaults of lanes on a device for every release."""
    _, shipped = outside.read(DEFAULTS)
    defaults_of_device: dict[str, Any] = shipped[device]
    return defaults_of_device
