"""Vectors by transformers in fp32: a program, run by the lane's own interpreter.

Reads from standard input `{"model": folder, "pooler": "last"|"mean"|"cls", "cases": {name: [ids]}}`
and prints one line of JSON: `{"versions": {...}, "vectors": {name: [numbers]}}`, not normalised.
"""

import json
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers


def pooled(hidden: Any, pooler: str) -> Any:
    """Return one state of the hidden states (tokens, width)."""
    return {"last": hidden[-1], "mean": hidden.mean(0), "cls": hidden[0]}[pooler]


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    model = transformers.AutoModel.from_pretrained(request["model"], dtype=torch.float32).eval()
    with torch.inference_mode():
        vectors = {
            name: pooled(
                model(torch.tensor([ids])).last_hidden_state[0].float(), request["pooler"]
            ).tolist()
            for name, ids in request["cases"].items()
        }
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({"versions": versions, "vectors": vectors}), flush=True)


if __name__ == "__main__":
    main()
