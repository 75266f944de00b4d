"""Changes a checkpoint's weights in place: `LANE-PYTHON benchmarks/rounded_weights.py FOLDER HOW`.

HOW is `fp8` (e4m3), `int8` or `int4`: every matrix except embeddings, norms and convolutions is
rounded by row and converted back to its dtype; `head` or `head=F`: in the first layer with
attention, the output of one head is scaled by 1.01 or F; or `experts`: in the last layer with
experts, the first two swap their weights. Exits 3 if a checkpoint has no experts. Run it with the
interpreter of a lane, which has torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

STAY = ("embed", "lm_head", "norm", "conv")
LEVELS = {"int8": 127, "int4": 7}
FP8_LARGEST = 448
"""The largest value of e4m3 (Open Compute Project, OFP8)."""
OUTPUT = "o_proj.weight"
MATRIX = 2
NOTHING_TO_CHANGE = 3


def rounded(weight: torch.Tensor, how: str) -> torch.Tensor:
    """Return a matrix rounded by row, in its old dtype."""
    values = weight.float()
    largest = values.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    if how == "fp8":
        scale = largest / FP8_LARGEST
        back = (values / scale).to(torch.float8_e4m3fn).float() * scale
    else:
        scale = largest / LEVELS[how]
        back = torch.round(values / scale) * scale
    return back.to(weight.dtype).contiguous()


def layer_of(name: str) -> int:
    """Return the number of a weight's layer."""
    return int(name.partition("layers.")[2].partition(".")[0])


def swap_experts(weights: dict[str, torch.Tensor]) -> bool:
    """Swap the weights of the first two experts in the last layer with experts."""
    apart = [name for name in weights if ".experts.0." in name]
    packed = [
        name for name, weight in weights.items() if ".experts." in name and weight.ndim > MATRIX
    ]
    if not (apart or packed):
        return False
    last = max(map(layer_of, apart or packed))
    for name in apart:
        if layer_of(name) == last:
            other = name.replace(".experts.0.", ".experts.1.")
            weights[name], weights[other] = weights[other], weights[name]
    for name in packed:
        if layer_of(name) == last:
            order = [1, 0, *range(2, len(weights[name]))]
            weights[name] = weights[name][order].contiguous()
    return True


def change(folder: Path, how: str) -> bool:
    """Change every file of weights in a folder; return False if there is nothing to change."""
    for path in sorted(folder.glob("*.safetensors")):
        weights = load_file(path)
        if how.startswith("head"):
            factor = float(how.partition("=")[2] or 1.01)
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            name = min(name for name in weights if name.endswith(OUTPUT))
            width = weights[name].shape[1] // config["num_attention_heads"]
            weights[name][:, :width] *= factor
        elif how == "experts":
            if not swap_experts(weights):
                return False
        else:
            for name, weight in weights.items():
                if weight.ndim >= MATRIX and not any(part in name for part in STAY):
                    weights[name] = rounded(weight, how)
        save_file(weights, path, metadata={"format": "pt"})
    return True


if __name__ == "__main__":
    sys.exit(0 if change(Path(sys.argv[1]), sys.argv[2]) else NOTHING_TO_CHANGE)
