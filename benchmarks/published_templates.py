"""Finds the parts of a request that published chat templates lose, without a server.

    python benchmarks/published_templates.py [--only gemma] [--from FOLDER]

The sources are listed in `published_templates.toml`: packages are fetched with pip, repositories
from GitHub, and failed fetches are reported. `--from` is a folder of downloaded templates, by their
file names. Known defects of a family file are counted, and other faults are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.catalog.checkpoint import Checkpoint
from pytest_vllm_gates.catalog.conversation import load_all, shapes
from pytest_vllm_gates.catalog.known_defects import sort_findings
from pytest_vllm_gates.checkpoints import miniatures
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.prompts import efforts, marked
from pytest_vllm_gates.prompts.reference import ReferenceRenderer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_vllm_gates.catalog.family import Family

PLACES = Path(__file__).with_suffix(".toml")
NOWHERE = Path("/nonexistent")
RAW = "https://raw.githubusercontent.com/{name}/{commit}/{file}"
SHOWN = 4
VERSION = "0.32.0"


def main() -> int:
    """Judge every template that is available."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="families that begin so")
    parser.add_argument("--from", dest="folder", type=Path, help="a folder of downloaded templates")
    options = parser.parse_args()
    had = 0
    for place, template, text in fetched(tomllib.loads(PLACES.read_text()), options.folder):
        if not template["family"].startswith(options.only):
            continue
        if isinstance(text, str):
            had += 1
            family = families.load(template["family"], NOWHERE)
            report(f"{template['file']} ({place}), as {family.name}", judge(text, template, family))
        else:
            print(f"{template['file']} ({place}): cannot be fetched: {text}")
    print(f"{had} templates judged")
    return 0 if had else 1


def fetched(
    places: dict[str, Any], folder: Path | None
) -> Iterator[tuple[str, dict[str, Any], str | Exception]]:
    """Yield the source, the entry and the text of each template, or why it is not available."""
    for package in places["packages"]:
        place = f"{package['name']} {package['version']}"
        with tempfile.TemporaryDirectory() as download:
            files = Path(download)
            error = None if folder else unpacked(package, files)
            for template in package["templates"]:
                file = (folder or files / package["folder"]) / template["file"]
                yield place, template, error or text_of(file, template["sha256"])
    for repository in places["repositories"]:
        place = f"{repository['name']} at {repository['commit']}"
        for template in repository["templates"]:
            if folder:
                yield place, template, text_of(folder / Path(template["file"]).name)
                continue
            url = RAW.format(**repository, file=template["file"])
            try:
                yield place, template, httpx.get(url, timeout=20).raise_for_status().text
            except httpx.HTTPError as error:
                yield place, template, error


def unpacked(package: dict[str, Any], folder: Path) -> Exception | None:
    """Fetch a package's wheel and unpack its templates; return the error, if any."""
    wanted = f"{package['name']}=={package['version']}"
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), wanted]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        return UserError(done.stderr.strip().splitlines()[-1])
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(package["folder"]):
                archive.extract(name, folder)
    return None


def text_of(file: Path, sha256: str = "") -> str | Exception:
    """Return a file's text, if its checksum is the recorded one."""
    try:
        data = file.read_bytes()
    except OSError as error:
        return error
    if sha256 and hashlib.sha256(data).hexdigest() != sha256:
        return UserError("its checksum differs from the recorded one")
    return data.decode()


def judge(text: str, template: dict[str, Any], family: Family) -> dict[str, tuple[int, list[str]]]:
    """Return for each check the number of known defects, and the other faults."""
    checkpoint = Checkpoint("published", str(miniatures.path(template["tokenizer"])))
    conversations = (*shapes(), *load_all(NOWHERE))
    trivial = next(one for one in conversations if one.name == "plain")
    try:
        reference = ReferenceRenderer(checkpoint, {"chat_template": text})
    except UserError as error:
        return {"it renders": (0, [str(error)])}
    with contextlib.closing(reference):
        prompts = marked.render(conversations, family, reference)
        states = efforts.plain_states(trivial, family, reference)
        judged = {
            "what_clients_send_is_rendered": marked.refused(prompts, (), family),
            "all_that_was_sent_is_in_the_prompt": marked.incomplete(prompts, (), family),
            "nothing_else_is_in_the_prompt": marked.unsent(prompts, (), family),
            "efforts_that_clients_send_are_taken_or_refused": efforts.judge(
                efforts.render(trivial, family, reference), (), states, family
            ),
        }
    result = {}
    for check, (findings, cases) in judged.items():
        kinds = sort_findings(check, findings, cases, family.known_defects, VERSION)
        says = [f"{finding.case.traits['shape']}: {finding.says}" for finding in kinds.new]
        result[check] = (len(findings) - len(kinds.new), says)
    return result


def report(title: str, judged: dict[str, tuple[int, list[str]]]) -> None:
    """Print the faults of a template."""
    known = sum(count for count, _ in judged.values())
    wrong = sum(len(says) for _, says in judged.values())
    print(f"{title}: {wrong} findings, {known} known")
    for says in (says for _, says in judged.values() if says):
        for line in says[:SHOWN]:
            print(f"    {line}")
        if len(says) > SHOWN:
            print(f"    and {len(says) - SHOWN} more")


if __name__ == "__main__":
    sys.exit(main())
