"""Log-probabilities by transformers in fp32: a program, run by the lane's own interpreter.

Reads from standard input `{"model": folder, "cases": {name: {"prompt": [ids], "generate": n}}}` and
prints one line of JSON: per case the log-probability of every prompt token after the first, the
greedy continuation of n tokens (fewer at a stop token), their log-probabilities, and each one's
lead over the second best, all natural logarithms. A case may have `"pictures": [data URLs]`, in the
order of their tokens in the prompt; the checkpoint's own processor reads them.
"""

import base64
import inspect
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers

# The models' names for the token of an image.
PLACES = ("mm_token_type_ids", "token_type_ids")


def load(folder: str) -> Any:
    """Return the model in fp32, by the exact class that its config names if transformers has it."""
    config = transformers.AutoConfig.from_pretrained(folder)
    named = (config.architectures or [""])[0]
    model_class = getattr(transformers, named, transformers.AutoModelForCausalLM)
    model = model_class.from_pretrained(folder, dtype=torch.float32)
    return model.eval()


def stop_ids(model: Any) -> set[int]:
    """Return the token ids that end an answer."""
    ids = model.generation_config.eos_token_id
    return set(ids) if isinstance(ids, list) else {ids}


def read(folder: str, urls: Sequence[str]) -> dict[str, Any]:
    """Return the output of the checkpoint's processor for pictures: pixels, and their grids."""
    from PIL import Image  # noqa: PLC0415 - texts are scored without it

    files = [io.BytesIO(base64.b64decode(url.partition(",")[2])) for url in urls]
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    made = processor(images=[Image.open(file).convert("RGB") for file in files])
    return dict(made.convert_to_tensors("pt"))


def look(model: Any, ids: torch.Tensor, read_pictures: dict[str, Any]) -> dict[str, Any]:
    """Return a model's arguments for the read pictures, and their positions in `ids`."""
    if not read_pictures:
        return {}
    taken = inspect.signature(model.forward).parameters
    places = (ids == model.config.image_token_id).int()
    named = {**read_pictures, **dict.fromkeys(PLACES, places)}
    return {name: value for name, value in named.items() if name in taken}


def run(model: Any, prompt: list[int], count: int, read_pictures: dict[str, Any]) -> dict[str, Any]:
    """Score a prompt and continue it greedily, each step from scratch: no cache can be wrong."""
    ids = list(prompt)
    scored: list[float] = []
    outputs: list[tuple[int, float]] = []
    leads: list[float] = []
    for step in range(count + 1):
        row = torch.tensor([ids])
        seen = look(model, row, read_pictures)
        logits = model(input_ids=row, use_cache=False, **seen).logits[0].float()
        logprobs = logits.log_softmax(-1)
        if step == 0:
            targets = torch.tensor(ids[1:])
            scored = logprobs[:-1].gather(1, targets[:, None])[:, 0].tolist()
        if step == count:
            break
        best = logprobs[-1].topk(2)
        output = int(best.indices[0])
        outputs.append((output, float(best.values[0])))
        leads.append(float(best.values[0] - best.values[1]))
        if output in stop_ids(model):
            break
        ids.append(output)
    return {
        "prompt": list(prompt),
        "prompt_logprobs": scored,
        "output": [token for token, _ in outputs],
        "output_logprobs": [logprob for _, logprob in outputs],
        "leads": leads,
    }


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    folder = request["model"]
    model = load(folder)
    with torch.inference_mode():
        cases = {}
        for name, case in request["cases"].items():
            urls = case.get("pictures")
            pictures = read(folder, urls) if urls else {}
            cases[name] = run(model, case["prompt"], case["generate"], pictures)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({"versions": versions, "cases": cases}), flush=True)


if __name__ == "__main__":
    main()
