"""uv takes packages from where pip is configured to take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.environment import uv as environment_uv

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home whose pip configuration is the only one there is."""
    monkeypatch.setattr(
        environment_uv, "pip_files", lambda _: [tmp_path / "system", tmp_path / "user"]
    )
    return tmp_path


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    return environment_uv.for_uv(environ)[0]


def test_files_speak_uvs_words(home: Path) -> None:
    (home / "user").write_text(
        "[global]\n"
        "index-url = https://mirror.example/simple\n"
        "extra_index_url =\n  https://one.example/simple\n  https://two.example/simple\n"
        "find-links = /wheels /more\n"
        "trusted-host = mirror.example\n"
        "cert = /etc/ca.pem\n"
        "timeout = 60\n"
    )
    found = handed_on({})
    assert found["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert found["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert found["UV_FIND_LINKS"] == "/wheels,/more"
    assert found["UV_INSECURE_HOST"] == "mirror.example"
    assert found["SSL_CERT_FILE"] == "/etc/ca.pem"
    assert found["UV_HTTP_TIMEOUT"] == "60"


def test_the_environment_wins_over_files_and_the_users_file_over_the_systems(home: Path) -> None:
    (home / "system").write_text("[global]\nindex-url = system\nfind-links = /system\n")
    (home / "user").write_text("[global]\nindex-url = user\nfind-links = /user\n")
    found = handed_on({"PIP_INDEX_URL": "said"})
    assert found["UV_DEFAULT_INDEX"] == "said"
    assert found["UV_FIND_LINKS"] == "/user"


def test_what_is_set_for_installing_wins_over_what_is_set_for_all(home: Path) -> None:
    (home / "user").write_text("[global]\nindex-url = all\n")
    (home / "system").write_text("[install]\nindex-url = installing\n")
    assert handed_on({})["UV_DEFAULT_INDEX"] == "installing"


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_what_was_said_to_uv_itself_wins_over_pip(home: Path, name: str) -> None:
    assert home
    found = handed_on({"PIP_INDEX_URL": "pip", name: "uv"})
    assert found[name] == "uv"
    assert found.get("UV_DEFAULT_INDEX", "uv") == "uv"


def test_no_index_is_handed_on(home: Path) -> None:
    (home / "user").write_text("[global]\nno-index = true\n")
    assert environment_uv.for_uv({})[1] == ["--no-index"]
    assert environment_uv.for_uv({"PIP_NO_INDEX": "0"})[1] == []


def test_settings_that_would_change_what_is_installed_are_not_handed_on(home: Path) -> None:
    assert home
    found = handed_on({"UV_OVERRIDE": "x", "VIRTUAL_ENV": "y", "UV_CACHE_DIR": "z"})
    assert "UV_OVERRIDE" not in found
    assert "VIRTUAL_ENV" not in found
    assert found["UV_CACHE_DIR"] == "z"


def test_a_file_pip_could_not_read_either_is_passed_over(home: Path) -> None:
    (home / "system").write_text("not a configuration")
    (home / "user").write_text("[global]\nindex-url = user\n")
    assert handed_on({})["UV_DEFAULT_INDEX"] == "user"


def test_pips_files_are_the_ones_pip_documents(tmp_path: Path) -> None:
    found = [str(path) for path in environment_uv.pip_files({"HOME": str(tmp_path)})]
    assert f"{tmp_path}/.pip/pip.conf" in found
    assert "/etc/pip.conf" in found
    assert found.index("/etc/pip.conf") < found.index(f"{tmp_path}/.pip/pip.conf")


def test_a_named_file_replaces_the_users_own_and_wins(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/named"}
    found = [str(path) for path in environment_uv.pip_files(environ)]
    assert found[-1] == "/named"
    assert not any(path.startswith(str(tmp_path)) for path in found)
    assert environment_uv.pip_files({"PIP_CONFIG_FILE": "/dev/null"}) == []
