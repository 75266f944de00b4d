"""The address of a served family, and how to reach it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vllm_gates.catalog import headers as request_headers
from pytest_vllm_gates.catalog.headers import AUTHORIZATION
from pytest_vllm_gates.client.bounds import DEFAULT, Bounds, Strikes
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_vllm_gates.catalog.lane import Lane
    from pytest_vllm_gates.client.tape import Tape


@dataclass(frozen=True)
class Endpoint:
    """The address of a served family. `api_key` and `headers` are never printed."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    tape: Tape | None = field(default=None, repr=False, compare=False)
    """The record of requests and responses."""
    bounds: Bounds = field(default=DEFAULT, repr=False, compare=False)
    strikes: Strikes = field(default_factory=Strikes, repr=False, compare=False)
    """How often the server exceeded the bounds."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Headers of every request, besides the key's."""
    verify: bool | str = True
    """The check of the server's certificate: as usual, none, or with these authorities."""
    key_hint: str = field(default="", repr=False, compare=False)
    """The hint for a refused key; '' if it is not a lane's own key."""
    tape_part: str = field(default="", repr=False, compare=False)
    """The part of the tape for its records; empty for the current part."""

    @property
    def root_url(self) -> str:
        """The URL without `/v1`, where `/health`, `/tokenize` and `/metrics` live."""
        return self.base_url.removesuffix("/v1")

    def request_headers(self, api_key: str | None = None) -> dict[str, str]:
        """Return the headers of a request; `api_key` replaces the right one."""
        key = self.api_key if api_key is None else api_key
        if not key:
            return dict(self.headers)
        return {**self.headers, AUTHORIZATION: f"Bearer {key}"}


def of_lane(
    lane: Lane,
    environment: Mapping[str, str],
    api_key_env: str,
    tape: Tape | None = None,
    bounds: Bounds = DEFAULT,
) -> Endpoint:
    """Return the address of a lane's running server; its model is not known yet.

    `api_key_env` is the key's variable if the lane names none. Raises `UserError` for a variable
    that the lane names and that is not set.
    """
    assert lane.base_url is not None  # noqa: S101 - only such a lane runs already
    missing = [
        f"the header {header} names ${{{name}}}"
        for header, name in request_headers.variables(lane.headers)
        if name not in environment
    ]
    if lane.api_key_env and lane.api_key_env not in environment:
        missing.append(f"api_key_env names {lane.api_key_env}")
    if missing:
        raise UserError(
            f"lane {lane.name}: {', '.join(missing)}, which is not set in the environment: "
            "export it before pytest runs"
        )
    own_key = request_headers.has(lane.headers, AUTHORIZATION)
    return Endpoint(
        base_url=lane.base_url.rstrip("/"),
        model="",
        api_key=None if own_key else environment.get(lane.api_key_env or api_key_env),
        tape=tape,
        bounds=bounds,
        headers=request_headers.expanded(lane.headers, environment),
        verify=lane.authorities,
        key_hint=_key_hint(lane, own_key=own_key),
    )


def _key_hint(lane: Lane, *, own_key: bool) -> str:
    if own_key:
        return f"see the header {AUTHORIZATION} in [headers] of lane {lane.name}"
    if lane.api_key_env:
        return (
            f"check that {lane.api_key_env} (api_key_env of lane {lane.name}) contains this "
            "server's key"
        )
    return ""


def secrets(lane: Lane, environment: Mapping[str, str]) -> list[str]:
    """Return the secrets that a lane sends to its running server.

    They are its key, the variables that its headers name, and the values with them.
    """
    names = [name for _, name in request_headers.variables(lane.headers)]
    values = [environment.get(name) for name in (lane.api_key_env, *names) if name]
    named = {header for header, _ in request_headers.variables(lane.headers)}
    for header in named:
        try:
            whole = request_headers.expanded({header: lane.headers[header]}, environment)
        except KeyError:
            continue
        values += whole.values()
    return [value for value in values if value]
