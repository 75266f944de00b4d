"""A fake vLLM server with LoRA adapters: it lists, answers, loads and unloads them.

Use `AdapterServer` where a test needs what vLLM does with adapters but not vLLM. It refuses what is
called `unfit` in its path, as vLLM refuses a rank that is too high.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers.scripted import ScriptedServer, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from servers.scripted import ServerAnswer

BASE = "alias"
HITS = "vllm:prefix_cache_hits_total"


class AdapterServer(ScriptedServer):
    """Answers a chat with its last message, after the word of the adapter that was asked."""

    def __init__(self, words: Mapping[str, str], *, loads: bool = True) -> None:
        """`words`: what each adapter that it begins with says first, by the adapter's name.

        Without `loads` it has no routes for loading.
        """
        super().__init__(self._route)
        self.words = dict(words)
        self.loaded = {name: name for name in words}
        """The adapter of the files behind each name."""
        self.has_routes = loads
        self.hits = 0

    def _route(self, path: str, body: Any) -> ServerAnswer:
        if path == "/version":
            return 200, {"version": "0.32.0"}
        if path == "/v1/models":
            cards = [{"id": name, "root": f"/{name}", "parent": BASE} for name in self.loaded]
            return 200, {"data": [{"id": BASE, "root": "/base", "parent": None}, *cards]}
        if path == "/metrics":
            return 200, Text(f"vllm:num_requests_running 0\n{HITS} {self.hits}\n")
        if path.endswith("_lora_adapter") and self.has_routes:
            return self._load(path, body)
        if "model" not in body:
            return 404, {"detail": "Not Found"}
        return self._chat(body)

    def _load(self, path: str, body: Any) -> ServerAnswer:
        name, folder = body.get("lora_name"), Path(body.get("lora_path") or "")
        if not name:
            return 400, {"error": {"type": "InvalidUserInput"}}
        if path.startswith("/v1/unload"):
            found = self.loaded.pop(name, None)
            return (200, Text("Success")) if found else (404, {"error": {"type": "NotFoundError"}})
        if folder.name not in self.words:
            return 500, {"error": {"message": "it does not fit", "type": "InternalServerError"}}
        self.loaded[name] = folder.name
        return 200, Text("Success")

    def _chat(self, body: Any) -> ServerAnswer:
        model = body["model"]
        if model not in {BASE, *self.loaded}:
            return 404, {"error": {"message": f"{model} does not exist", "type": "NotFoundError"}}
        if "messages" not in body:
            return 200, {"model": model, "choices": [{"text": "x"}]}
        self.hits += 16
        said = body["messages"][-1]["content"][-40:]
        part = {"content": f"{self.words[self.loaded[model]]} {said}" if model != BASE else said}
        ids = [ord(letter) for letter in part["content"]]
        choice = {"finish_reason": "stop", "token_ids": ids}
        if body.get("stream"):
            return 200, [{"model": model, "choices": [{**choice, "delta": part}]}]
        return 200, {"model": model, "choices": [{**choice, "message": part}]}
