"""Writes prompts with an encoder of vLLM: a program that the lane's own interpreter runs.

    python -I encoder_program.py vllm.tokenizers.deepseek_v32_encoding

First it prints one line of JSON: the files that determine prompts, and whether the encoder gets a
message's content in parts. Then, for every line of JSON it reads, `{"conversation": [...],
"messages": [...], "tools": [...], "kwargs": {...}}`, it prints one: `{"text": prompt}`, or
`{"refused": why}` if the encoder raises.

The encoder and its caller in vLLM are loaded without the rest of vLLM, which would take ten
seconds to import.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

SUFFIX = "_encoding"


class Nothing(ModuleType):
    """A module in which every name is an empty class."""

    __path__: list[str] = []  # noqa: RUF012 - so the import system wants it

    def __getattr__(self, name: str) -> Any:
        """Return an empty class, whatever the name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces imports of transformers, and of vLLM except for the encoder, by empty modules."""

    def __init__(self, tokenizers: Path, real: str) -> None:
        self._tokenizers = tokenizers
        self._real = real

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the path of a module of vLLM or transformers."""
        del path, target
        package, _, name = fullname.rpartition(".")
        if package == "vllm.tokenizers" and name.startswith(self._real):
            return importlib.util.spec_from_file_location(fullname, self._tokenizers / f"{name}.py")
        if fullname.partition(".")[0] in ("vllm", "transformers"):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


class Vocabulary:
    """As much of a tokenizer as the encoder's constructor needs."""

    def get_added_vocab(self) -> dict[str, int]:
        """Return that no tokens were added."""
        return {}


def takes_parts(vllm: Path, name: str) -> bool:
    """Return whether vLLM's renderer of that name passes content in parts."""
    renderers = vllm / "renderers"
    listed = (renderers / "registry.py").read_text(encoding="utf-8")
    match = re.search(rf'"{name}": \("(\w+)"', listed)
    text = (renderers / f"{match[1] if match else name}.py").read_text(encoding="utf-8")
    return 'content_format="openai"' in text


def main() -> None:
    """Answer line by line until the input ends."""
    module = sys.argv[1]
    package, _, encoding = module.rpartition(".")
    name = encoding.removesuffix(SUFFIX)
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("this interpreter has no vLLM")
    vllm = Path(spec.submodule_search_locations[0])
    files = [vllm / "tokenizers" / f"{module_name}.py" for module_name in (encoding, name)]
    if absent := [str(file) for file in files if not file.is_file()]:
        raise SystemExit(f"this vLLM has no {' and no '.join(absent)}")
    parts = takes_parts(vllm, name)
    sys.meta_path.insert(0, Empty(vllm / "tokenizers", name))
    glue = importlib.import_module(f"{package}.{name}")
    tokenizer = getattr(glue, f"get_{name}_tokenizer")(Vocabulary())
    answer({"files": [str(file) for file in files], "takes_parts": parts})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            text = tokenizer.apply_chat_template(
                messages=request["messages"],
                conversation=request["conversation"],
                tools=request["tools"],
                tokenize=False,
                **request["kwargs"],
            )
        except Exception as error:  # noqa: BLE001 - whatever it raises, it refuses
            answer({"refused": str(error) or type(error).__name__})
        else:
            answer({"text": text})


def answer(body: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(body), flush=True)


if __name__ == "__main__":
    main()
