"""Scores prompts twice by transformers in fp32: as it is, and with the recurrence written out.

A program for a lane's interpreter. Reads `{"model": folder, "prompts": {name: [ids]}}` from
standard input and prints `{name: [[log-probability by transformers, by the recurrence], ...]}`.

The gated delta rule (S. Yang, J. Kautz, A. Hatamizadeh, Gated Delta Networks, arXiv 2412.06464,
equation 10), for the state S, keys and queries of length one, queries scaled by 1 / sqrt(width):

    S_t = exp(g_t) S_{t-1} (I - beta_t k_t k_t') + beta_t v_t k_t'        o_t = S_t q_t
"""

import json
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

EPSILON = 1e-6


def recurrence(
    query: Any, key: Any, value: Any, *, g: Any, beta: Any, initial_state: Any = None, **_: Any
) -> tuple[Any, Any]:
    """Return the outputs and the last state, token by token in fp64.

    Shapes: query and key [batch, tokens, heads, key width], value [.., value width], g and beta
    [batch, tokens, heads].
    """
    query, key, value, g, beta = (each.double() for each in (query, key, value, g, beta))
    query, key = (
        each * (each.square().sum(-1, keepdim=True) + EPSILON).rsqrt() for each in (query, key)
    )
    query = query / key.shape[-1] ** 0.5
    batch, tokens, heads, width = key.shape
    state = torch.zeros(batch, heads, value.shape[-1], width, dtype=torch.float64)
    if initial_state is not None:
        state = initial_state.double().transpose(-1, -2)
    identity = torch.eye(width, dtype=torch.float64)
    outputs = []
    for at in range(tokens):
        k, v, b = key[:, at, :, None], value[:, at, :, :, None], beta[:, at, :, None, None]
        forgets = identity - b * k.transpose(-1, -2) * k
        state = g[:, at].exp()[..., None, None] * state @ forgets + b * v * k
        outputs.append((state @ query[:, at, :, :, None])[..., 0])
    return torch.stack(outputs, dim=1).float(), state.transpose(-1, -2).float()


def scored(model: Any, ids: list[int]) -> list[float]:
    """Return the log-probability of each token after the first, in nats."""
    logprobs = model(torch.tensor([ids]), use_cache=False).logits[0].float().log_softmax(-1)
    chosen = logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None])
    return list(chosen[:, 0].tolist())


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    config = transformers.AutoConfig.from_pretrained(request["model"])
    model_class = getattr(transformers, config.architectures[0])
    model = model_class.from_pretrained(request["model"], dtype=torch.float32).eval()
    prompts = request["prompts"]
    with torch.inference_mode():
        as_it_is = {name: scored(model, ids) for name, ids in prompts.items()}
        modeling.torch_chunk_gated_delta_rule = recurrence
        written_out = {name: scored(model, ids) for name, ids in prompts.items()}
    print(json.dumps({name: [as_it_is[name], written_out[name]] for name in prompts}))


if __name__ == "__main__":
    main()
