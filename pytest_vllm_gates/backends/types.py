"""The result of each backend's boot, and the summary of all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT = "default"
SERVES, REFUSED, REPLACED, FAILS, DIES = "serves", "refused", "replaced", "does not boot", "dies"
BAD = frozenset({REPLACED, FAILS, DIES})
REFUSAL = re.compile(r"ValueError: (Selected backend .* is not valid for this configuration\. .*)")
"""vLLM 0.32.0, platforms/cuda.py, get_attn_backend_cls."""
MLA_REFUSAL = re.compile(r"ValueError: (.*MLA prefill backend.*)")


@dataclass(frozen=True)
class BackendTrial:
    """The result of one backend."""

    name: str
    serve: Mapping[str, Any]
    state: str
    why: str = ""
    """The reason, in vLLM's words if it gives one."""
    used: str = ""
    """The backend that the log names; '' if it names none."""
    faults: tuple[str, ...] = ()
    """How its numbers differ from the reference."""
    compared: str = ""
    """The reference of the comparison; '' if nothing was compared."""
    tokens_per_s: float | None = None
    boot_s: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether it boots but does not work, or was replaced without an error."""
        return self.state in BAD or bool(self.faults)

    def relative(self, default: BackendTrial) -> float | None:
        """Return its speed as a share of the default's."""
        if not self.tokens_per_s or not default.tokens_per_s:
            return None
        return self.tokens_per_s / default.tokens_per_s


@dataclass(frozen=True)
class BackendMatrix:
    """All trials; the first is the default's."""

    trials: Sequence[BackendTrial]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The exit status: 1 if a backend does not work, or the default does not serve."""
        bad = any(trial.is_bad for trial in self.trials)
        return int(bad or not self.trials or self.trials[0].state != SERVES)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "backends": [
                {
                    "name": trial.name,
                    "serve": dict(trial.serve),
                    "state": trial.state,
                    "why": trial.why,
                    "used": trial.used,
                    "compared_with": trial.compared,
                    "faults": list(trial.faults),
                    "tokens_per_s": trial.tokens_per_s,
                    "relative_to_default": trial.relative(self.trials[0]),
                    "boot_s": round(trial.boot_s, 1),
                }
                for trial in self.trials
            ],
            "left_out": dict(self.left_out),
        }

    def lines(self) -> list[str]:
        """Lay it out for a terminal."""
        lines = []
        for trial in self.trials:
            share = trial.relative(self.trials[0])
            speed = f"{trial.tokens_per_s:.0f} tokens/s" if trial.tokens_per_s else ""
            relative = f"{share:.0%} of the default" if share and trial.name != DEFAULT else ""
            answers = "WRONG" if trial.faults else "right" if trial.compared else ""
            used = f"log: {trial.used}" if trial.used else ""
            if used and trial.name != DEFAULT and trial.used == self.trials[0].used:
                used += ", the default's backend: equal boots differ by this much here"
            cells = (trial.state, answers, speed, relative, used)
            lines.append(f"{trial.name:28} " + "  ".join(cell for cell in cells if cell))
            lines += [f"{'':28} {words}" for words in (trial.why, *trial.faults) if words]
        lines += [f"{name:28} not tried: {why}" for name, why in self.left_out.items()]
        return lines


def refusal(log: str) -> str:
    """Return vLLM's reason for refusing the selected backend; '' if it gives none."""
    for regex in (REFUSAL, MLA_REFUSAL):
        if match := regex.search(log):
            return match[1].strip()
    return ""
