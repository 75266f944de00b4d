"""What this process runs in: a container, and which kind, or the bare machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# A file that an engine leaves in its containers, or a word in the control group of process 1.
FILES = {".dockerenv": "docker", "run/.containerenv": "podman", ".singularity.d": "apptainer"}
WORDS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc"}


def kind(root: Path = Path("/")) -> str | None:
    """Return what kind of container this is, or None for none."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    with contextlib.suppress(OSError):
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8")
        for word, name in WORDS.items():
            if word in groups:
                return name
    return next((name for file, name in FILES.items() if (root / file).exists()), None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the bytes that the control group grants, if it has a limit: its killer asks nobody."""
    for file in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return int((root / file).read_text(encoding="utf-8"))
    return None
