"""Changes a checkpoint's weights in place: `LANE-PYTHON benchmarks/rounded_weights.py FOLDER HOW`.

HOW is `fp8` (e4m3), `int8` or `int4`, each by row and back to the dtype they had, for every matrix
but embeddings, norms and convolutions; or `heads`: in the first layer that has an attention, the
output of a quarter of its heads is scaled by 1.01. It runs in the interpreter of a lane, which has
torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

STAY = ("embed", "lm_head", "norm", "conv")
LEVELS = {"int8": 127, "int4": 7}
FP8_LARGEST = 448
"""Of e4m3 (Open Compute Project, OFP8)."""
OUTPUT = "o_proj.weight"
MATRIX = 2


def rounded(weight: torch.Tensor, how: str) -> torch.Tensor:
    """Return a matrix rounded by row, in the dtype it had."""
    values = weight.float()
    largest = values.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    if how == "fp8":
        scale = largest / FP8_LARGEST
        back = (values / scale).to(torch.float8_e4m3fn).float() * scale
    else:
        scale = largest / LEVELS[how]
        back = torch.round(values / scale) * scale
    return back.to(weight.dtype).contiguous()


def main() -> None:
    """Change every file of weights in the folder."""
    folder, how = Path(sys.argv[1]), sys.argv[2]
    for path in sorted(folder.glob("*.safetensors")):
        weights = load_file(path)
        if how == "heads":
            name = min(name for name in weights if name.endswith(OUTPUT))
            width = weights[name].shape[1] // 4
            weights[name][:, :width] *= 1.01
        else:
            for name, weight in weights.items():
                if weight.ndim >= MATRIX and not any(part in name for part in STAY):
                    weights[name] = rounded(weight, how)
        save_file(weights, path, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
