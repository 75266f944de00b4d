"""Keeps pairs that only the canary fails as incidents, under the chosen redaction."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vllm_gates import __version__
from pytest_vllm_gates.catalog import family as families
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.files import WriteError
from pytest_vllm_gates.incidents import expectation, write as incidents_write
from pytest_vllm_gates.incidents.parts import body_of, seeds
from pytest_vllm_gates.incidents.served_family import family_named
from pytest_vllm_gates.incidents.types import (
    CAPTURED,
    Incident,
    RecordedFinding,
    ServedCheckpoint,
    ServedLane,
)
from pytest_vllm_gates.redaction import redactor as redaction_redactor
from pytest_vllm_gates.redaction.prompts import HASH, Prompts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.redaction.redactor import Redactor
    from pytest_vllm_gates.shadow.tally import PairJudgement

MOST_OF_A_KIND = 3
NAME = "canary"
TEST = "test_is_answered_as_expected"
UNKNOWN = "unknown"


class FailingPairs:
    """Writes the first failures of each kind; `most` altogether."""

    def __init__(  # noqa: PLR0917
        self,
        folder: Path,
        canary: str,
        most: int,
        family: str | None,
        project: Path,
        redactor: Redactor,
    ) -> None:
        """`canary` is its URL with `/v1`."""
        self._folder = folder
        self._canary = canary
        self._most = most
        self._family = family
        self._project = project
        self._redactor = redactor
        self._kinds: Counter[str] = Counter()
        self.written: list[Path] = []

    def wants(self, judged: PairJudgement) -> bool:
        """Return whether a pair is to be written; from then on it counts as written."""
        if self._kinds.total() >= self._most:
            return False
        kind = judged.canary_only[0]
        if self._kinds[kind] >= MOST_OF_A_KIND:
            return False
        self._kinds[kind] += 1
        return True

    def write(self, canary: Sent, judged: PairJudgement) -> None:
        """Write the canary's side as an incident; report only the first file that fails."""
        kinds = judged.canary_only
        model = str(body_of(canary).get("model") or UNKNOWN)
        sent = replace(canary, name=NAME)
        family = self._family or self._family_of(model)
        incident = Incident(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            tool={"name": "pytest-vllm-gates", "version": __version__},
            family=family,
            model=model,
            checkpoint=ServedCheckpoint(name=model, source=model, revision=None),
            lane=ServedLane(
                name="base-url", title="the canary of a shadow", form="base_url",
                base_url=self._canary, env={}, serve={}, overlay=(),
            ),
            gate=CAPTURED,
            test=f"{TEST}[{family}]",
            case=NAME,
            says=judged.canary.broken[kinds[0]],
            findings=tuple(
                RecordedFinding(case=NAME, says=f"{kind}: {judged.canary.broken[kind]}")
                for kind in kinds
            ),
            seeds=seeds([sent]),
            command=f"pytest --repro {{name}} --base-url {shlex.quote(self._canary)}",
        )  # fmt: skip
        expected = ("\n".join(expectation.DEFAULT) + "\n").encode()
        clean = incidents_write.cleaned(
            incident, [sent], {expectation.FILE: expected}, self._redactor
        )
        name = incidents_write.name_of(incident.created, family, "shadow", kinds[0])
        try:
            self.written.append(incidents_write.write(self._folder, name, *clean))
        except (WriteError, UserError) as error:
            self._most = 0
            print(f"no incidents are kept: {error}", file=sys.stderr)

    def _family_of(self, model: str) -> str:
        try:
            return family_named(model, self._project).name
        except UserError:
            return UNKNOWN


def shadow_redactor(mode: str, url: str, secrets: Sequence[str | None], project: Path) -> Redactor:
    """Return the redaction of all that a shadow writes; `mode` is for prompts and answers.

    Markers of the families' templates are not part of a prompt: a sentence may name them.
    """
    redactor = redaction_redactor.of_process(os.environ, [url])
    redactor.learn(*secrets)
    markers = frozenset(
        marker for family in families.load_all(project) for marker in family.markers
    )
    redactor.prompts = _prompts(mode, markers)
    return redactor


def _prompts(mode: str, markers: frozenset[str]) -> Prompts:
    if mode != HASH:
        return Prompts(mode, shown=markers)
    from pytest_vllm_gates.redaction.prompt_key import prompt_key  # noqa: PLC0415 - only here

    return Prompts(mode, prompt_key(), markers)
