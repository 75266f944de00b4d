"""A Hub checkpoint's config and the bytes of its weights, without downloading weights.

huggingface_hub fetches the two small JSON files, and the headers of the safetensors files as ranges
of bytes.
"""

from __future__ import annotations

from pathlib import Path

from pytest_vllm_gates.checkpoints.safetensors import drafts
from pytest_vllm_gates.errors import UserError

CONFIGS = ("config.json", "hf_quant_config.json")


def configs(repository: str) -> Path:
    """Return a folder with the checkpoint's config; raises `UserError` if it is not available."""
    import huggingface_hub  # noqa: PLC0415 - only where the Hub is asked
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:  # HfHubHTTPError and LocalEntryNotFoundError are OSErrors
        folder = huggingface_hub.snapshot_download(repository, allow_patterns=list(CONFIGS))
    except (OSError, HFValidationError, ValueError) as error:
        raise UserError(
            f"{repository}: its config.json cannot be fetched from the Hub: {first_line(error)}\n"
            "check the name, log in with `hf auth login` for gated models, or name a folder"
        ) from error
    if not (Path(folder) / "config.json").is_file():
        raise UserError(f"{repository} has no config.json: not a model that vLLM loads")
    return Path(folder)


def weights_bytes(repository: str, layers: int) -> tuple[int | None, str]:
    """Return the bytes of the weights by the files' headers, or None and the reason."""
    import huggingface_hub  # noqa: PLC0415 - only where the Hub is asked
    from huggingface_hub.errors import (  # noqa: PLC0415
        NotASafetensorsRepoError,
        SafetensorsParsingError,
    )

    try:
        found = huggingface_hub.get_safetensors_metadata(repository)
    except (OSError, ValueError, NotASafetensorsRepoError, SafetensorsParsingError) as error:
        return None, f"the headers of the weights cannot be read: {first_line(error)}"
    total = sum(
        info.data_offsets[1] - info.data_offsets[0]
        for file in found.files_metadata.values()
        for name, info in file.tensors.items()
        if not drafts(name, layers)
    )
    return total, ""


def first_line(error: Exception) -> str:
    """Return an error's first line, or its kind if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
