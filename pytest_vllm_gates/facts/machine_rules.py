"""The names of what a machine may say for or against a signature, as data files name it.

`diagnosis/machine.py` has a function for each; a data file that names another is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "architecture_known": "the lane's vLLM implements the captured `architecture`",
    "architecture_removed": "the lane's vLLM no longer has the captured `architecture`",
    "architecture_unknown": "the lane's vLLM does not implement the captured `architecture`",
    "capability_below_8": "a GPU's compute capability is below 8.0",
    "capability_in_wheel": "torch and vLLM were compiled for every GPU's compute capability",
    "capability_not_in_wheel": "torch or vLLM was not compiled for a GPU's compute capability",
    "container": "the server runs in a container",
    "cpu_lane": "the lane's vLLM is a CPU build",
    "driver_fits": "the driver runs the lane's CUDA",
    "driver_too_old": "the driver is older than the lane's CUDA asks for",
    "few_open_files": "a process may open fewer than 65536 files",
    "gpu_memory_free": "nine tenths of every GPU's memory are free",
    "gpu_memory_taken": "more than a tenth of a GPU's memory is taken",
    "little_host_memory": "less than a tenth of the machine's memory is available",
    "model_type_known": "the lane's transformers knows the captured `model_type`",
    "model_type_unknown": "the lane's transformers does not know the captured `model_type`",
    "no_gpu": "no NVIDIA GPU answers",
    "no_hub_token": "no token for the Hugging Face Hub is set",
    "hub_offline": "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set",
    "one_gpu": "one GPU answers",
    "package_absent": "no installed package is named as the captured `package`",
    "package_fits": "the captured `package` is as those that declare it want it",
    "packages_disagree": "an installed package's requirement is not met",
    "requirements_met": "every installed package's requirements are met",
    "small_shared_memory": "less than 1 GiB of shared memory",
    "unified_memory": "a GPU shares the machine's memory",
}
