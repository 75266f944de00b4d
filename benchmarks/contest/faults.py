"""The faults of `tests/faults` that are played: their class, and the server that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

CLASSES = (
    "template", "reasoning", "tools", "stop", "structured", "streaming", "contracts", "dialects",
    "sampling", "numerics", "images", "adapters", "speculation", "cache", "isolation",
    "long context", "robustness", "load", "throughput", "endurance", "lifecycle", "boot", "facts",
)  # fmt: skip
OF_GATE = {
    "chat_template": "template", "vision": "images", "long_context": "long context",
    "startup": "facts",
}  # fmt: skip
"""Gates whose class has another name."""
SHARED, SPOILING, OWN = "qwen3.5", "spoiling", "own boots"
SERVERS = (
    SHARED, "qwen3-vl", "adapters", "storing", SPOILING, "wearing", OWN, "cycling", "kv cache",
    "silent", "throughput",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A test of `tests/faults` as it is played."""

    id: str
    kind: str
    """The class of its fault, or `harmless` for a change that is none."""
    server: str
    tested: str
    """The class whose gate judges it."""


HARMLESS = "harmless"
# By file: the server, and the class where the fault has no gate of its own.
FILES: dict[str, tuple[str, str]] = {
    "test_conversations.py": (SHARED, ""),
    "test_answers.py": (SHARED, ""),
    "test_contracts.py": (SHARED, "contracts"),
    "test_dialects.py": (SHARED, "dialects"),
    "test_sampling.py": (SHARED, "sampling"),
    "test_long_context.py": (SHARED, "long context"),
    "test_vision.py": ("qwen3-vl", "images"),
    "test_adapters.py": ("adapters", "adapters"),
    "test_stored_responses.py": ("storing", "dialects"),
    "test_load.py": (SPOILING, "load"),
    "test_endurance.py": ("wearing", "endurance"),
    "test_real_boots.py": (OWN, "boot"),
    "test_flags.py": (OWN, "reasoning"),
    "test_startup.py": (OWN, "facts"),
    "test_kernel.py": (OWN, "robustness"),
    "test_lifecycle.py": ("cycling", "lifecycle"),
    "test_kv_cache.py": ("kv cache", "cache"),
    "test_trusted_run.py": ("silent", "numerics"),
    "test_throughput.py": ("throughput", "throughput"),
}
FAULTY = {
    "test_turns_its_check_red", "test_turns_one_gate_red", "test_turns_the_sampling_gate_red",
    "test_a_request_that_hangs_turns_robustness_red", "test_a_worn_server_is_red",
    "test_a_server_that_grows_or_sinks_is_red", "test_load_fault_fails_its_check",
    "test_a_store_has_to_keep_the_answer", "test_stored_responses_have_to_go_on",
    "test_parsers_of_other_families_fail", "test_stop_token_inside_the_thinking",
    "test_template_without_a_thinking_switch",
    "test_valid_request_that_kills_the_engine_turns_it_red",
    "test_wrong_positions_turn_numerics_red", "test_connector_that_loads_the_wrong_thing_is_red",
    "test_evicted_block_that_is_still_found_is_red", "test_a_spoiled_server_is_red",
    "test_a_warm_cache_of_another_model_is_red", "test_leak_fails",
    "test_flag_without_effect_fails",
    "test_changed_start_and_small_cache_fail", "test_silent_change_is_found_and_named",
    "test_a_flag_vllm_does_not_know_is_named_before_a_boot",
    "test_truncated_weights_are_reported_before_a_boot",
    "test_without_the_overlay_the_model_cannot_be_inspected",
    "test_lane_slower_than_another_is_a_regression",
    "test_server_three_times_slower_than_recorded_fails",
}  # fmt: skip
INNOCENT = {
    "test_turns_nothing_red", "test_a_healthy_server_is_green", "test_unchanged_server_stays_green",
    "test_a_model_that_does_not_follow_is_not_mixed_up", "test_unspoilt_server_is_green",
    "test_a_refused_parameter_is_not_a_fault", "test_a_right_server_is_green",
    "test_stored_responses_go_on",
}  # fmt: skip
NOT_PLAYED = {
    "test_prompts.py": "the server is unedited, only the files that the gate reads are",
    "test_lost_texts.py": "the gate judges the files before a server answers",
    "test_named_boots.py": "every contestant sees that nothing answers; the suite names the cause",
    "test_preflight_boots.py": "the same",
    "test_ranks.py": "the ranks are judged before a boot",
    "test_incidents.py": "replays of incidents",
    "test_lanes_apart.py": "two lanes are compared, and no contestant compares lanes",
    "test_pooling.py": "a model that writes no text",
    "test_classes.py": "a model that writes no text",
}
"""Files of `tests/faults` that are left out, and why."""
WITHOUT_SERVER = {
    "speculation": "its faults, in `tests/features/test_feature_faults.py`, are answers in memory"
}
"""Classes whose faults no contestant can look at, and why."""
CLASS_OF_TEST = {
    "test_template_without_a_thinking_switch": "template",
    "test_wrong_positions_turn_numerics_red": "numerics",
}


def entry(item: pytest.Item) -> Entry | None:
    """Return how a test is played; None where it is not."""
    function = item.name.partition("[")[0]
    known = FILES.get(item.path.name)
    if known is None or function not in FAULTY | INNOCENT:
        return None
    server, kind = known
    tested = CLASS_OF_TEST.get(function) or kind or _gate_of(item)
    played = HARMLESS if function in INNOCENT else tested
    return Entry(f"{item.path.name}::{item.name}", played, server, tested)


def _gate_of(item: pytest.Item) -> str:
    """Return the class of a fault by the gate that it turns red."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    gate = getattr(parameters.get("fault"), "gate", None) or "robustness"
    return OF_GATE.get(gate, gate)
