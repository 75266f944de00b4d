"""The state of the canary at any moment: takes judged pairs, and answers queries."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.shadow.decide import REJECT, ShadowDecision, decide, kind_state
from pytest_vllm_gates.shadow.document import shadow_document
from pytest_vllm_gates.shadow.tally import PairJudgement, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_vllm_gates.client.exchange import Sent
    from pytest_vllm_gates.shadow.copies import MirrorCounts
    from pytest_vllm_gates.shadow.decide import Question
    from pytest_vllm_gates.shadow.judging import JudgeProcess
    from pytest_vllm_gates.shadow.settings import ShadowSettings
    from pytest_vllm_gates.shadow.tokens.partings import PartingTokens


class CanaryWatch:
    """Counts judged pairs and decides. A REJECT is final: no later pair revokes it."""

    def __init__(  # noqa: PLR0917
        self,
        settings: ShadowSettings,
        question: Question,
        counts: MirrorCounts,
        judge: JudgeProcess,
        targets: dict[str, str],
        clean: Callable[[str], str],
        on_failing: Callable[[Sent, Sent, PairJudgement], None] | None = None,
        tokens: PartingTokens | None = None,
    ) -> None:
        """`targets` are the URLs of both sides, `on_failing` gets pairs the canary fails.

        `tokens` counts the tokens before greedy answers differ.

        `clean` redacts sentences, because they quote answers.
        """
        self._settings = settings
        self._question = question
        self._judge = judge
        self._targets = targets
        self._clean = clean
        self._on_failing = on_failing
        self._tokens = tokens
        self._deciding = asyncio.Lock()
        self.counts = counts
        self.tally = Tally(settings.kinds, settings.figures)
        self.judged = asyncio.Event()
        """Set after each judged pair; a waiter clears it."""
        self.rejected: ShadowDecision | None = None
        self.started = _now()

    async def take(self, stable: Sent, canary: Sent) -> None:
        """Have a pair judged, and count it."""
        judged = await self._judge.judge(stable, canary)
        if judged.parted and self._tokens:
            at = await self._tokens.before(*judged.parted)
            judged = replace(judged, parts_at_token=at)
        self.count(replace(judged, parted=None), (stable, canary))

    def count(self, judged: PairJudgement, pair: tuple[Sent, Sent] | None = None) -> None:
        """Count a judged pair; decide at once if only the canary failed."""
        self.tally.add(self._shown(judged))
        if judged.canary_only and not judged.left_out:
            self._look_at(judged.canary_only)
            if self._on_failing and pair:
                self._on_failing(*pair, judged)
        self.judged.set()

    def _shown(self, judged: PairJudgement) -> PairJudgement:
        """Return a judgement with redacted sentences: they quote answers."""
        stable, canary = (
            replace(side, broken={kind: self._clean(says) for kind, says in side.broken.items()})
            for side in (judged.stable, judged.canary)
        )
        return replace(judged, stable=stable, canary=canary)

    def _look_at(self, kinds: Sequence[str]) -> None:
        """Reject at once if one of these kinds is now worse."""
        tally, settings = self.tally, self._settings
        states = (
            kind_state(kind, tally.kinds[kind], tally.pairs, settings, self._question)
            for kind in kinds
        )
        if self.rejected is None and any(state.rejected for state in states):
            self._note(decide(tally, settings, self._question))

    def _note(self, decision: ShadowDecision) -> ShadowDecision:
        if decision.promotion == REJECT and self.rejected is None:
            self.rejected = decision
        return self.rejected or decision

    async def decision(self, *, forecast: bool = False) -> ShadowDecision:
        """Return the decision at this moment."""
        if self.rejected is None:
            # This takes milliseconds, for which clients would wait.
            async with self._deciding:
                self._note(
                    decision := await asyncio.to_thread(
                        decide, self.tally.snapshot(), self._settings, self._question,
                        forecast=forecast,
                    )
                )  # fmt: skip
        return self.rejected or decision

    async def document(self) -> dict[str, Any]:
        """Return the whole document, by the published schema."""
        decision = await self.decision(forecast=True)
        run = {**self._targets, "started": self.started, "created": _now()}
        # The bounds of rates take milliseconds, for which clients would wait.
        return await asyncio.to_thread(
            shadow_document, decision, self.tally, self.counts, self._question, self._settings, run
        )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
