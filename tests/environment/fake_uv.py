"""Stands in for uv: makes an environment of empty metadata folders, or fails as `$FAKE_UV` demands.

`$FAKE_UV` names what goes wrong, `$FAKE_UV_CALLS` a file that gets every call, `$FAKE_UV_GO`
a file an install waits for in its middle, `$FAKE_UV_PYTHON` the version of the Python it finds. Run
by a bare interpreter: standard library only.
"""

import json
import os
import sys
import time
from pathlib import Path

NO_SOLUTION = "error: No solution found when resolving dependencies\n  cause: no version of {}"
FAILURES = {
    "disk": "error: Failed to install: a.whl\n  cause: No space left on device (os error 28)",
    "network": "error: Failed to fetch: https://index.invalid/a/\n  cause: dns error",
    "nothing-known": "error: something nobody has seen",
    "no-version": NO_SOLUTION.format("alpha==1.0"),
    "offline": NO_SOLUTION.format("alpha==1.0")
    + "\nhint: Packages were unavailable because the network was disabled.",
    "no-abi": NO_SOLUTION.format("alpha==1.0")
    + "\n  cause: alpha==1.0 has no wheels with a matching Python ABI tag (e.g., `cp313`)",
}


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def venv(folder: Path) -> int:
    packages = folder / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("home = /nowhere\nversion_info = 3.11.7\n")
    return 0


def install(arguments: list[str], trouble: str) -> int:
    python = Path(arguments[arguments.index("--python") + 1])
    packages = python.parent.parent / "lib" / "python3.11" / "site-packages"
    if "-r" in arguments:
        text = Path(arguments[arguments.index("-r") + 1]).read_text().splitlines()
        pins = [
            line.partition(" ;")[0].removesuffix(" \\")
            for line in text
            if line[:1] != "#" and "win32" not in line and "--hash" not in line
        ]
    else:
        pins = [argument for argument in arguments if "==" in argument]
    builds = [pin for pin in pins if "+cpu" in pin]
    installed = {path.name for path in packages.iterdir()}
    lacking = [
        build for build in builds if build.replace("==", "-") + ".dist-info" not in installed
    ]
    if trouble.startswith("no-torch") and lacking and "--torch-backend" not in arguments:
        say(NO_SOLUTION.format(lacking[0]))
        return 1
    if trouble == "no-torch-anywhere" and "--torch-backend" in arguments:
        say(FAILURES["network"])
        return 2
    say(f"Resolved {len(pins)} packages in 1ms\nDownloading torch (182.9MiB)")
    for number, requirement in enumerate(pins):
        name, _, version = requirement.strip().partition("==")
        if trouble == "wrong" and number == 0:
            version = "9.9"
        (packages / f"{name.replace('-', '_')}-{version}.dist-info").mkdir(exist_ok=True)
        go = os.environ.get("FAKE_UV_GO")
        while go and number == 0 and not Path(go).exists():
            time.sleep(0.01)
    return 0


def compile_lock(arguments: list[str], trouble: str) -> int:
    """Give every package of an index checksums; one from a folder, as builds of torch, has none."""
    requirements = Path(arguments[2]).read_text().split()
    builds = [requirement for requirement in requirements if "+cpu" in requirement]
    if trouble == "no-torch" and builds and "--torch-backend" not in arguments:
        say(NO_SOLUTION.format(builds[0]))
        return 1
    lines = []
    for requirement_line in requirements:
        name, _, version = requirement_line.partition("==")
        hashes = f" \\\n    --hash=sha256:{name}-{version} \\\n    --hash=sha256:other"
        lines.append(requirement_line if requirement_line in builds else requirement_line + hashes)
    Path(arguments[arguments.index("-o") + 1]).write_text("\n".join(lines) + "\n")
    return 0


def main() -> int:
    arguments = sys.argv[1:]
    trouble = os.environ.get("FAKE_UV", "")
    with Path(os.environ["FAKE_UV_CALLS"]).open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    if arguments[:2] == ["python", "find"]:
        version = os.environ.get("FAKE_UV_PYTHON", "")
        print(version)
        return 0 if version else 2
    if arguments[0] == "venv":
        return venv(Path(arguments[-1]))
    if trouble in FAILURES:
        say(FAILURES[trouble])
        return 1
    if arguments[:2] == ["pip", "compile"]:
        return compile_lock(arguments, trouble)
    return install(arguments, trouble)


sys.exit(main())
