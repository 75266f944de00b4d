"""Writes harmony prompts (gpt-oss) as vLLM does: a program that the lane's own interpreter runs.

    python -I harmony_program.py vllm.entrypoints.openai.parser.harmony_utils

It prints and reads the same lines as `encoder_program.py`. vLLM takes these prompts from messages
as the client sent them; no chat template is involved. Only this module of vLLM, its settings and
its exceptions are loaded. vLLM 0.31 and later bring the vocabulary with them (oss-harmony);
openai-harmony, which earlier ones use, fetches it from the network.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

REAL = ("vllm.envs", "vllm.exceptions")


class Hollow(ModuleType):
    """A module in which every name is an empty class, the same one each time."""

    __path__: list[str] = []  # noqa: RUF012 - so the import system wants it

    def __getattr__(self, name: str) -> Any:
        """Return an empty class, whatever the name."""
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        real = importlib.import_module(whole) if whole in REAL else None
        setattr(self, name, real or type(name, (Anything,), {}))
        return getattr(self, name)


class Anything:
    """Takes any arguments, has the named attributes, and methods of other names do nothing."""

    def __init__(self, *_: object, **fields: object) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        """Return a function that takes any call and does nothing, as a logger's methods."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class HollowImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces imports of vLLM by empty modules, except for the modules that write prompts."""

    def __init__(self, vllm: Path, module: str) -> None:
        self._vllm = vllm
        self._real = (*REAL, module)

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the path of a module of vLLM."""
        del path, target
        if fullname in self._real:
            file = self._vllm.joinpath(*fullname.split(".")[1:]).with_suffix(".py")
            return importlib.util.spec_from_file_location(fullname, file)
        if fullname.partition(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


def declared(harmony: ModuleType, tool: dict[str, Any]) -> Any:
    """Return a tool in the form of vLLM's request."""
    function = {"description": None, "parameters": None, **tool["function"]}
    return harmony.ChatCompletionToolsParam(
        type=tool.get("type", "function"), function=SimpleNamespace(**function)
    )


def written(harmony: ModuleType, request: dict[str, Any]) -> str:
    """Return the text of a request's prompt, as vLLM's `_make_request_with_harmony` writes it."""
    effort = request["kwargs"].get("reasoning_effort")
    if effort == "none":
        raise ValueError("Harmony does not support reasoning_effort='none'")
    instructions, messages = harmony.extract_instructions_from_messages(request["messages"])
    prompt = harmony.build_harmony_preamble(
        instructions=instructions,
        tools=[declared(harmony, tool) for tool in request["tools"] or ()] or None,
        reasoning_effort=effort,
        with_custom_tools=True,
    )
    prompt.extend(harmony.parse_chat_inputs_to_harmony_messages(messages))
    text: str = harmony.get_encoding().decode(harmony.render_for_completion(prompt))
    return text


def main() -> None:
    """Answer line by line until the input ends."""
    module = sys.argv[1]
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("this interpreter has no vLLM")
    vllm = Path(spec.submodule_search_locations[0])
    file = vllm.joinpath(*module.split(".")[1:]).with_suffix(".py")
    if not file.is_file():
        raise SystemExit(f"this vLLM has no {file}")
    sys.meta_path.insert(0, HollowImports(vllm, module))
    harmony = importlib.import_module(module)
    harmony.get_encoding()
    answer({"files": [str(file)], "takes_parts": False})
    for line in sys.stdin:
        try:
            text = written(harmony, json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever it raises, it refuses
            answer({"refused": str(error) or type(error).__name__})
        else:
            answer({"text": text})


def answer(body: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(body), flush=True)


if __name__ == "__main__":
    main()
