"""Writes the prompts of a family whose checkpoints have an encoder instead of a template."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vllm_gates.descriptors import readable
from pytest_vllm_gates.errors import UserError
from pytest_vllm_gates.goldens import Refused
from pytest_vllm_gates.prompts.types import (
    AGAIN_LIMIT_S,
    RENDER_LIMIT_S,
    Endless,
    as_served,
    options_as_served,
    tools_as_served,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = Path(__file__).with_name("encoder_program.py")
HARMONY = Path(__file__).with_name("harmony_program.py")
HARMONY_MODULE = "harmony_utils"
"""The name of vLLM's module that writes prompts from messages as they were sent."""
START_LIMIT_S = 60.0


class Encoder:
    """The encoder of a lane's vLLM, in one process of the lane's own interpreter.

    Raises `UserError` when the lane's vLLM has no such encoder. `close` ends the process.
    """

    def __init__(
        self,
        module: str,
        python: Path,
        serve: Mapping[str, Any],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; one of the server's flags `serve` and its `env` change the rendering."""
        self._module = module
        environment = {**os.environ, **(env or {})}
        self._env = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
        self._defaults = dict(serve.get("default_chat_template_kwargs") or {})
        program = HARMONY if module.endswith(HARMONY_MODULE) else PROGRAM
        self._argv = [str(python), "-I", str(program), module]
        self._process: subprocess.Popen[str] | None = None
        self._hung = False
        started = self._start()
        self._files = [Path(file) for file in started["files"]]
        self._takes_parts: bool = started["takes_parts"]

    def write(self, body: Mapping[str, Any]) -> str:
        """Return the text of a request's prompt.

        Raises `Refused` when the encoder does, and `Endless` when it does not come to an end.
        """
        request = {
            "messages": list(body["messages"]),
            "conversation": [
                as_served(message, in_parts=self._takes_parts) for message in body["messages"]
            ],
            "tools": tools_as_served(body.get("tools")),
            "kwargs": options_as_served(body, self._defaults),
        }
        if self._process is None:
            self._start()
        limit_s = AGAIN_LIMIT_S if self._hung else RENDER_LIMIT_S
        answer = self._answer(json.dumps(request), limit_s)
        if answer is None:
            self._hung = True
            self.close()
            raise Endless(
                f"{self._module} was still busy with this conversation after {limit_s:.0f} s: "
                "does it loop?"
            )
        if "refused" in answer:
            raise Refused(answer["refused"])
        text: str = answer["text"]
        return text

    def takes_parts(self) -> bool:
        """Return whether vLLM passes it content in parts."""
        return self._takes_parts

    def sources(self) -> dict[str, bytes]:
        """Return the bytes of the files that determine prompts, by name."""
        return {f"vllm/{_inside_vllm(file)}": file.read_bytes() for file in self._files}

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> dict[str, Any]:
        try:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, encoding="utf-8",
                env=self._env,
            )  # fmt: skip
            answer = self._answer(None, START_LIMIT_S)
        except (OSError, UserError) as error:
            raise UserError(f"the encoder {self._module} cannot be used: {error}") from error
        if answer is None:
            self.close()
            raise UserError(
                f"the encoder {self._module} did not start within {START_LIMIT_S:.0f} s"
            )
        return answer

    def _answer(self, line: str | None, limit_s: float) -> dict[str, Any] | None:
        """Send a line, if any, and return the answer; None if none comes in time."""
        process = self._process
        assert process is not None and process.stdin and process.stdout  # noqa: S101 - pipes
        try:
            if line is not None:
                process.stdin.write(line + "\n")
                process.stdin.flush()
            if not readable([process.stdout.fileno()], limit_s):
                return None
            reply: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:
            _, errors = process.communicate()
            self._process = None
            lines = errors.strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
            raise UserError(lines[0]) from error
        return reply


def _inside_vllm(file: Path) -> str:
    """Return a file's path as seen from vLLM's folder."""
    return file.as_posix().rpartition("/vllm/")[2]
