"""A mistake in a data file is reported with the file, the line and the nearest key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import Field

from pytest_vllm_gates.catalog import toml
from pytest_vllm_gates.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


class Wheel(toml.Record):
    size: int
    maker: str = ""


class Engine(toml.Record):
    power: float
    wheels: tuple[Wheel, ...] = ()


class Car(toml.Record):
    name: str
    title: str
    doors: int = 4
    colours: tuple[str, ...] = ()
    engine: Engine | None = None
    wheels: tuple[Wheel, ...] = ()
    spares: dict[str, Wheel] = Field(default_factory=dict)


TITLE = 'title = "a car"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "car.toml"


def complaint(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        toml.load(file, Car, name="car")
    return str(caught.value)


def test_a_whole_file_is_read_with_arrays_as_tuples(file: Path) -> None:
    file.write_text(TITLE + 'colours = ["red"]\n[engine]\npower = 1.5\n[[wheels]]\nsize = 17\n')
    car = toml.load(file, Car, name="car")
    assert car == Car(
        name="car",
        title="a car",
        colours=("red",),
        engine=Engine(power=1.5),
        wheels=(Wheel(size=17),),
    )


@pytest.mark.parametrize(
    ("text", "line", "name", "guess"),
    [
        pytest.param("dors = 5\n", 2, "dors", "doors", id="at the top"),
        pytest.param("# a remark\n\nDoors = 5\n", 4, "Doors", "doors", id="wrong case"),
        pytest.param(
            "[engine]\npower = 1.0\npwer = 2.0\n", 4, "engine.pwer", "power", id="in a table"
        ),
        pytest.param(
            "[spares.left]\nsize = 1\nmakr = 'x'\n", 4, "spares.left.makr", "maker", id="by name"
        ),
        pytest.param("[engine]\npower = 1.0\n[engin]\n", 4, "engin", "engine", id="a table"),
        pytest.param(
            "engine = { power = 1.0, wheel = [] }\n", 2, "engine.wheel", "wheels", id="inline"
        ),
        pytest.param(
            "engine.power = 1.0\nengine.pover = 2.0\n", 3, "engine.pover", "power", id="dotted"
        ),
        pytest.param(
            "[[wheels]]\nsize = 1\n\n[[wheels]]\nsize = 2\nmakr = 'x'\n",
            7,
            "wheels.1.makr",
            "maker",
            id="in the second of an array",
        ),
        pytest.param(
            "[engine]\npower = 1.0\n[[engine.wheels]]\nsize = 1\n[[engine.wheels]]\nsiz = 2\n",
            7,
            "engine.wheels.1.siz",
            "size",
            id="in an array inside a table",
        ),
        pytest.param('"dooors" = 5\n', 2, "dooors", "doors", id="quoted"),
    ],
)
def test_unknown_key_has_its_line_and_the_nearest_key(
    file: Path, text: str, line: int, name: str, guess: str
) -> None:
    message = complaint(file, TITLE + text)
    assert f"{file}:{line}: unknown key {name!r}; did you mean {guess!r}?" in message


def test_unknown_key_without_a_guess_lists_the_known_keys(file: Path) -> None:
    message = complaint(file, TITLE + "[engine]\npower = 1.0\nxyzzy = 1\n")
    assert message == f"{file}:4: unknown key 'engine.xyzzy'; known here: power, wheels"


@pytest.mark.parametrize(
    ("text", "line", "name", "value"),
    [
        ("doors = '4'\n", 2, "doors", "'4'"),
        ("doors = 4.5\n", 2, "doors", "4.5"),
        ("doors = true\n", 2, "doors", "True"),
        ("colours = 'red'\n", 2, "colours", "'red'"),
        ("colours = ['red', 3]\n", 2, "colours.1", "3"),
        ("[engine]\npower = 'much'\n", 3, "engine.power", "'much'"),
        ("engine = 3\n", 2, "engine", "3"),
    ],
)
def test_a_value_of_the_wrong_type_is_shown_with_its_line(
    file: Path, text: str, line: int, name: str, value: str
) -> None:
    message = complaint(file, TITLE + text)
    assert message.startswith(f"{file}:{line}: {name}: Input should be")
    assert message.endswith(f"(found {value})")


@pytest.mark.parametrize(
    ("text", "name"), [("doors = 4\n", "title"), (TITLE + "[engine]\n", "engine.power")]
)
def test_a_missing_key_is_named(file: Path, text: str, name: str) -> None:
    assert complaint(file, text) == f"{file}: the key {name!r} is missing"


def test_all_mistakes_are_reported_at_once(file: Path) -> None:
    messages = complaint(file, "dors = 5\n[engine]\npower = 'x'\n").splitlines()
    assert len(messages) == 3
    assert all(line.startswith(str(file)) for line in messages)


def test_invalid_toml_is_reported_with_its_line(file: Path) -> None:
    message = complaint(file, TITLE + "doors = = 4\n")
    assert message.startswith(f"{file}: not valid TOML: ")
    assert "line 2" in message


def test_file_that_is_not_text_is_reported(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid TOML"):
        toml.load(file, Car, name="car")


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.toml: cannot be read: No such file"):
        toml.load(tmp_path / "nothing.toml", Car, name="car")
    with pytest.raises(UserError, match=r"cannot be read: Is a directory"):
        toml.load(tmp_path, Car, name="car")


def test_a_record_cannot_be_changed(file: Path) -> None:
    file.write_text(TITLE)
    car = toml.load(file, Car, name="car")
    with pytest.raises(ValueError, match="frozen"):
        car.doors = 2  # type: ignore[misc]
