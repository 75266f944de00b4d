"""Lets torchvision's CUDA wheel be imported beside a CPU torch.

Repairs: the wheel on PyPI is built for CUDA. Beside a CPU torch its library of operators cannot be
loaded, and `import torchvision` dies with "operator torchvision::nms does not exist". vLLM then
cannot inspect Qwen3.5, whose module imports torchvision's transforms, and newer transformers fail
even earlier. The two operators that are looked up during the import are declared, without an
implementation: a call still raises an error, but serving text never calls them.

Versions: torchvision 0.28.0 beside torch 2.13.0+cpu; other pairs behave alike.

Found by: serving Qwen3.5 with vLLM on a CPU ("Model architectures ['Qwen3_5ForCausalLM'] failed to
be inspected") and importing torchvision alone.

Idle where the operators exist: a CPU build of torchvision, or a CUDA torch.
"""

from types import ModuleType

from vllm_gates_repairs._after_import import after_import

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

_declared: list[object] = []  # torch forgets what a collected Library declared


def arm() -> None:
    """Declare what is missing once torchvision has tried to load its own operators."""
    after_import("torchvision.extension", _declare_missing)


def _declare_missing(_: ModuleType) -> None:
    import torch  # noqa: PLC0415 - torchvision has imported it; others shall not

    known = torch.ops.torchvision
    missing = [schema for schema in SCHEMAS if not hasattr(known, schema.partition("(")[0])]
    if missing:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in missing:
            library.define(schema)
        _declared.append(library)
