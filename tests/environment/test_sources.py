"""uv takes packages from the sources that pip is configured with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_vllm_gates.environment import uv

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home whose pip configuration is the only one there is."""
    monkeypatch.setattr(uv, "pip_files", lambda _: [tmp_path / "system", tmp_path / "user"])
    return tmp_path


def handed_on(environ: Mapping[str, str]) -> dict[str, str]:
    return uv.for_uv(environ)[0]


def test_pip_files_become_uv_variables(home: Path) -> None:
    (home / "user").write_text(
        "[global]\n"
        "index-url = https://mirror.example/simple\n"
        "extra_index_url =\n  https://one.example/simple\n  https://two.example/simple\n"
        "find-links = /wheels /more\n"
        "trusted-host = mirror.example\n"
        "cert = /etc/ca.pem\n"
        "timeout = 60\n"
    )
    uv_environ = handed_on({})
    assert uv_environ["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert uv_environ["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert uv_environ["UV_FIND_LINKS"] == "/wheels,/more"
    assert uv_environ["UV_INSECURE_HOST"] == "mirror.example"
    assert uv_environ["SSL_CERT_FILE"] == "/etc/ca.pem"
    assert uv_environ["UV_HTTP_TIMEOUT"] == "60"


def test_environment_beats_user_file_beats_system_file(home: Path) -> None:
    (home / "system").write_text("[global]\nindex-url = system\nfind-links = /system\n")
    (home / "user").write_text("[global]\nindex-url = user\nfind-links = /user\n")
    uv_environ = handed_on({"PIP_INDEX_URL": "said"})
    assert uv_environ["UV_DEFAULT_INDEX"] == "said"
    assert uv_environ["UV_FIND_LINKS"] == "/user"


def test_install_section_beats_global_section(home: Path) -> None:
    (home / "user").write_text("[global]\nindex-url = all\n")
    (home / "system").write_text("[install]\nindex-url = installing\n")
    assert handed_on({})["UV_DEFAULT_INDEX"] == "installing"


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_uv_variables_beat_pip_settings(home: Path, name: str) -> None:
    assert home
    uv_environ = handed_on({"PIP_INDEX_URL": "pip", name: "uv"})
    assert uv_environ[name] == "uv"
    assert uv_environ.get("UV_DEFAULT_INDEX", "uv") == "uv"


def test_no_index_is_passed_to_uv(home: Path) -> None:
    (home / "user").write_text("[global]\nno-index = true\n")
    assert uv.for_uv({})[1] == ["--no-index"]
    assert uv.for_uv({"PIP_NO_INDEX": "0"})[1] == []


def test_settings_that_change_packages_are_not_passed_on(home: Path) -> None:
    assert home
    uv_environ = handed_on({"UV_OVERRIDE": "x", "VIRTUAL_ENV": "y", "UV_CACHE_DIR": "z"})
    assert "UV_OVERRIDE" not in uv_environ
    assert "VIRTUAL_ENV" not in uv_environ
    assert uv_environ["UV_CACHE_DIR"] == "z"


def test_unreadable_pip_file_is_ignored(home: Path) -> None:
    (home / "system").write_text("not a configuration")
    (home / "user").write_text("[global]\nindex-url = user\n")
    assert handed_on({})["UV_DEFAULT_INDEX"] == "user"


def test_pips_files_are_the_ones_pip_documents(tmp_path: Path) -> None:
    paths = [str(path) for path in uv.pip_files({"HOME": str(tmp_path)})]
    assert f"{tmp_path}/.pip/pip.conf" in paths
    assert "/etc/pip.conf" in paths
    assert paths.index("/etc/pip.conf") < paths.index(f"{tmp_path}/.pip/pip.conf")


def test_a_named_file_replaces_the_users_own_and_wins(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/named"}
    paths = [str(path) for path in uv.pip_files(environ)]
    assert paths[-1] == "/named"
    assert not any(path.startswith(str(tmp_path)) for path in paths)
    assert uv.pip_files({"PIP_CONFIG_FILE": "/dev/null"}) == []
