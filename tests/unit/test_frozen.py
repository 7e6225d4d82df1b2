"""Records: what a frozen dataclass promises, with methods that all of them share."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

import pytest
from mailboat.frozen import Frozen


class Login(Frozen):
    """A record with all kinds of fields."""

    RULES: ClassVar[tuple[str, ...]] = ("no field",)

    user: str
    secret: str = field(default="none", repr=False)
    tries: int = 3
    seen: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Model:
    """What it must behave like."""

    user: str
    secret: str = field(default="none", repr=False)
    tries: int = 3
    seen: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    ("values", "named"),
    [(("ann",), {}), (("ann", "x", 0), {}), ((), {"user": "ann", "tries": 5}), (("ann",), {"seen": ["a"]})],
)
def test_a_record_takes_values_as_a_dataclass_does(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    record, model = Login(*values, **named), Model(*values, **named)
    assert asdict(record) == asdict(model)
    assert repr(record) == repr(model).replace("Model", "Login")
    assert replace(record, tries=9) == Login(record.user, record.secret, 9, record.seen)
    assert [item.name for item in fields(record)] == ["user", "secret", "tries", "seen"]


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("ann", "x", 1, [], 5), {}), (("ann",), {"user": "bob"}), (("ann",), {"usr": "bob"})],
)
def test_a_record_refuses_values_that_a_dataclass_refuses(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Login, Model):
        with pytest.raises(TypeError):
            kind(*values, **named)


def test_a_record_can_not_be_changed() -> None:
    record = Login("ann")
    with pytest.raises(FrozenInstanceError, match="user can't be changed"):
        record.user = "bob"  # type: ignore[misc]  # that is the point
    with pytest.raises(FrozenInstanceError, match="user can't be removed"):
        del record.user
    assert record.user == "ann"


def test_records_are_equal_when_class_and_values_are() -> None:
    class Other(Frozen):
        user: str

    class Another(Frozen):
        user: str

    assert Other("ann") == Other("ann")
    assert hash(Other("ann")) == hash(Other("ann"))
    assert Other("ann") != Other("bob")
    assert Other("ann") != Another("ann")
    assert Other("ann") != "ann"


def test_a_default_that_is_made_is_made_for_each_record() -> None:
    first, second = Login("ann"), Login("ann")
    first.seen.append("home")
    assert second.seen == []


def test_a_record_is_matched_by_position() -> None:
    match Login("ann", "x", 7):
        case Login(user, _, tries):
            found = user, tries
    assert found == ("ann", 7)


def test_a_record_survives_pickling_and_copying() -> None:
    record = Login("ann", tries=7)
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record
