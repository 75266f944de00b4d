"""Vectors by transformers in fp32: a program, run by the lane's own interpreter.

Reads from standard input `{"model": folder, "pooler": "last"|"mean"|"cls", "head": bool,
"cases": {name: [ids]}}` and prints one line of JSON: `{"versions": {...}, "vectors": {name:
[numbers]}}`, not normalised. With a head these are the probabilities of its labels.
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


def loaded(folder: str, *, head: bool) -> tuple[Any, Any]:
    """Return the model without its head, and a function from a pooled state (width,) to numbers."""
    if not head:
        model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        return model, lambda state: state
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32
    ).eval()
    # Its own forward takes the last token that is not padding: a text may end in that token.
    return whole.base_model, lambda state: probabilities(whole.score(state))


def probabilities(logits: Any) -> Any:
    """Return the probabilities of logits (labels,): softmax, or sigmoid of a single one."""
    return torch.sigmoid(logits) if len(logits) == 1 else torch.softmax(logits, 0)


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    model, numbers = loaded(request["model"], head=request.get("head", False))
    with torch.inference_mode():
        vectors = {
            name: numbers(
                pooled(model(torch.tensor([ids])).last_hidden_state[0].float(), request["pooler"])
            ).tolist()
            for name, ids in request["cases"].items()
        }
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({"versions": versions, "vectors": vectors}), flush=True)


if __name__ == "__main__":
    main()
