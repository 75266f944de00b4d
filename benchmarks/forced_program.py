"""Runs vLLM's engine once for each job, all in processes forked from this one.

    LANE-PYTHON benchmarks/forced_program.py JOBS.json FOLDER

Most of a server's boot time is its imports; here they happen once. Each job has the flags of a
server, silent changes (`rounded_weights.py`, `silent/silent_change.py`), the texts to score, and
prompts to answer; the result is written to `FOLDER/NUMBER.json`. The engine, the worker and the
kernels are the server's; only HTTP is missing.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "silent"))

import rounded_weights  # type: ignore[import-not-found, unused-ignore]
import silent_change  # type: ignore[import-not-found, unused-ignore]
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.sampling_params import SamplingParams
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.worker import cpu_worker  # noqa: F401 - it must be imported before anything is forked

TOKENS, LONG_TOKENS, ANSWER_TOKENS = 256, 1024, 16
AT_ONCE = 8
"""The same values as in `numerics/forced.py`."""
BESIDE = 4
BESIDE_TOKENS = 64


class Engine:
    """One engine, which answers prompts of token ids."""

    def __init__(self, argv: list[str]) -> None:
        parser = make_arg_parser(FlexibleArgumentParser())
        arguments = EngineArgs.from_cli_args(parser.parse_args(argv))
        self._engine = LLMEngine.from_engine_args(arguments)
        self._count = 0
        self.beside = 0
        """The number of other requests that run at the same time."""
        self._others: set[str] = set()

    def token_ids(self, text: str) -> list[int]:
        """Return the tokens of a text that is not a prompt."""
        tokenizer = self._engine.get_tokenizer()
        return list(tokenizer.encode(text, add_special_tokens=False))

    @property
    def context(self) -> int:
        """The longest prompt with its answer."""
        return int(self._engine.model_config.max_model_len)

    def _add(self, ids: list[int], parameters: SamplingParams) -> str:
        self._count += 1
        name = str(self._count)
        self._engine.add_request(name, {"prompt_token_ids": ids}, parameters)
        return name

    def ask(self, prompts: list[list[int]], count: int, *, scored: bool) -> list[dict[str, Any]]:
        """Return the scores of concurrent prompts, and of their greedy answers."""
        parameters = SamplingParams(
            max_tokens=count, temperature=0, seed=0, logprobs=1,
            prompt_logprobs=1 if scored else None, detokenize=False,
        )  # fmt: skip
        names = [self._add(ids, parameters) for ids in prompts]
        done: dict[str, dict[str, Any]] = {}
        while len(done) < len(names):
            while len(self._others) < self.beside:
                other = SamplingParams(max_tokens=BESIDE_TOKENS, temperature=1, ignore_eos=True)
                self._others.add(self._add(prompts[0][:8], other))
            for output in self._engine.step():
                if output.finished and output.request_id in names:
                    done[output.request_id] = answer_of(output)
                elif output.finished:
                    self._others.discard(output.request_id)
        return [done[name] for name in names]


def answer_of(output: Any) -> dict[str, Any]:
    """Return an answer's log-probabilities, and whether each token is the likeliest."""
    ids, scored = output.prompt_token_ids, output.prompt_logprobs or [None]
    (choice,) = output.outputs
    places = [place[token] for place, token in zip(scored[1:], ids[1:], strict=False)]
    return {
        "prompt": list(ids),
        "prompt_logprobs": [place.logprob for place in places],
        "right": [place.rank == 1 for place in places],
        "output": list(choice.token_ids),
        "output_logprobs": [
            place[token].logprob
            for place, token in zip(choice.logprobs, choice.token_ids, strict=True)
        ],
    }


def forced(engine: Engine, ids: dict[str, list[int]]) -> dict[str, Any]:
    """Score every text alone, beside other requests, and with an answer."""
    texts: dict[str, Any] = {}
    for name, tokens in ids.items():
        (alone,) = engine.ask([tokens], 1, scored=True)
        texts[name] = {"ids": tokens, "alone": alone["prompt_logprobs"]}
    names = [*ids]
    for begin in range(0, len(names), AT_ONCE):
        group = names[begin : begin + AT_ONCE]
        prompts = [ids[name] for name in group]
        together = engine.ask(prompts, 1, scored=True)
        answers = engine.ask(prompts, ANSWER_TOKENS, scored=False)
        for name, scores, answer in zip(group, together, answers, strict=True):
            texts[name] |= {
                "together": scores["prompt_logprobs"],
                "answer": answer["output"],
                "answer_logprobs": answer["output_logprobs"],
            }
    return texts


def cut(engine: Engine, texts: dict[str, str]) -> dict[str, list[int]]:
    """Return the tokens of each text, and of all texts together, cut to the context."""
    room = engine.context - ANSWER_TOKENS - 1
    whole = {name: engine.token_ids(text) for name, text in texts.items()}
    together = [token for tokens in whole.values() for token in tokens]
    ids = {name: tokens[: min(TOKENS, room)] for name, tokens in whole.items()}
    return {**ids, "long": together[: min(LONG_TOKENS, room)]}


def work(job: dict[str, Any]) -> dict[str, Any] | None:
    """Run one job; None if its weights have nothing to change."""
    if job["weights"] and not rounded_weights.change(Path(job["folder"]), job["weights"]):
        return None
    silent_change.apply(job["silent"])
    engine = Engine(job["argv"])
    ids = cut(engine, job["texts"])
    result: dict[str, Any] = {"runs": {"once": forced(engine, ids)}}
    if job["again"]:
        result["runs"]["warm prefix"] = forced(engine, ids)
        engine.beside = BESIDE
        result["runs"]["another batch"] = forced(engine, ids)
        engine.beside = 0
    prompts = [case["prompt"] for case in job["cases"]]
    longest = max((case["count"] for case in job["cases"]), default=1)
    scored = engine.ask(prompts, 1, scored=True)
    answered = engine.ask(prompts, longest, scored=False)
    result["cases"] = [
        {**scores, "answer": answer["output"][: case["count"]]}
        for case, scores, answer in zip(job["cases"], scored, answered, strict=True)
    ]
    return result


def main() -> None:
    """Fork for each job, one after the other."""
    jobs, folder = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    for number, job in enumerate(jobs):
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                unfinished = folder / f"{number}.part"
                unfinished.write_text(json.dumps(work(job)), encoding="utf-8")
                unfinished.rename(folder / f"{number}.json")
            except BaseException:  # noqa: BLE001 - an error must not affect the next job
                traceback.print_exc()
                (folder / f"{number}.failed").touch()
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.waitpid(child, 0)
        print(f"{job['name']}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
