"""An interpreter with a vLLM that is nothing but an encoder, as `Encoder` starts it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "vllm.tokenizers.toy_encoding"
ENCODING = """\
def encode_messages(messages, thinks):
    for message in messages:
        if message["content"] == "refuse":
            raise ValueError("no such turn")
        while message["content"] == "loop":
            pass
        if message["content"] == "die":
            raise SystemExit("out of memory")
    text = "".join(f"[{m['role']}:{m['content']}]" for m in messages)
    return text + ("<think>" if thinks else "")
"""
GLUE = """\
from transformers import TokenizersBackend

from vllm.renderers.chat_utils import ChatCompletionMessageParam

from .hf import HfTokenizer, get_cached_tokenizer
from .toy_encoding import encode_messages


def get_toy_tokenizer(tokenizer):
    class Toy(tokenizer.__class__):
        def apply_chat_template(self, messages, tools=None, tokenize=True, **kwargs):
            assert not tokenize
            messages = kwargs.get("conversation", messages)
            if tools:
                messages = [{"role": "tools", "content": len(tools)}, *messages]
            return encode_messages(messages, kwargs.get("thinking", False))

    return Toy()
"""
PYTHON = """\
#!/bin/sh
exec {python} -c 'import runpy, sys; sys.path.insert(0, "{site}"); sys.argv = sys.argv[2:]; \
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""


def interpreter(folder: Path, content_format: str = "string") -> Path:
    """Make it; importing more of this vLLM than its encoder fails."""
    files = {
        "vllm/__init__.py": "raise ImportError('this takes ten seconds')\n",
        "vllm/tokenizers/__init__.py": "raise ImportError('this, too')\n",
        "vllm/tokenizers/toy_encoding.py": ENCODING,
        "vllm/tokenizers/toy.py": GLUE,
        "vllm/renderers/registry.py": '_RENDERERS = {"toy": ("toys", "ToyRenderer")}\n',
        "vllm/renderers/toys.py": f'parse_chat_messages(content_format="{content_format}")\n',
    }
    site = folder / "site"
    for name, text in files.items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    python = folder / "python"
    python.write_text(PYTHON.format(python=sys.executable, site=site), encoding="utf-8")
    python.chmod(0o755)
    return python
