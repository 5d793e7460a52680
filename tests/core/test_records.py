"""The dataclasses of the core do what those of the standard library do, and make their methods when they are used."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import typing
from types import ModuleType
from typing import ClassVar

import pytest

from ptir_tools.core import records

OPTIONS = [{}, {"frozen": True}, {"eq": False}, {"repr": False}, {"frozen": True, "eq": False}, {"kw_only": True}]


def classes(module: ModuleType, **options: bool) -> tuple[type, type]:
    """A class with every kind of field, and one that inherits from it."""
    field = module.field

    @module.dataclass(slots=True, **options)
    class Base:
        kind: ClassVar[str] = "base"
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        made: int = field(default=7, init=False)
        aside: int = field(default=0, compare=False, repr=False)
        late: int = field(default=1, kw_only=True)

        def total(self) -> int:
            return self.a + len(self.c) + self.late

    @module.dataclass(slots=True, **options)
    class Derived(Base):
        a: int
        d: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", self.a + 1)

    return Base, Derived


def outcome(call):
    """What a call gives: the kind of its error, or its result."""
    try:
        return call()
    except Exception as error:
        return AttributeError if isinstance(error, AttributeError) else type(error)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("often", [0, 8, 1000])
def test_as_the_standard_library_does(options: dict[str, bool], which: int, often: int, monkeypatch) -> None:
    """Instances that are filled field by field, and those that a compiled method makes."""
    monkeypatch.setattr(records, "OFTEN", often)
    seen = []
    for module in (records, dataclasses):
        cls = classes(module, **options)[which]
        x, y, z = cls(a=1), cls(a=1, aside=3), cls(a=2, b="c", c=[1], late=5)
        calls = [
            lambda cls=cls: cls.__match_args__,
            lambda cls=cls, module=module: [(f.name, f.init, f.compare) for f in module.fields(cls)],
            lambda cls=cls: cls(1, "x", [2]).total(),
            lambda cls=cls: cls(),
            lambda cls=cls: cls(a=1, made=2),
            lambda cls=cls: cls(1, a=1),
            lambda cls=cls: cls(1, nothing=1),
            lambda cls=cls: cls(*range(9)),
            lambda cls=cls: vars_of(cls(c=[], a=3, b=None)),
            lambda cls=cls: vars_of(cls(4, "b", [5], late=0, aside=None)),
            lambda x=x: x.kind,
            lambda x=x, y=y: x == y,
            lambda x=x, y=y: x == 1 or x != y,
            lambda x=x, z=z: x == z,
            lambda x=x: x.c is type(x)(a=1).c,
            lambda x=x, y=y: hash(x) == hash(y),
            lambda y=y: repr(y) if options.get("repr", True) else object.__repr__ is type(y).__repr__,
            lambda y=y, module=module: vars_of(module.replace(y, a=9)),
            lambda y=y, module=module: module.replace(y, nothing=9),
            lambda x=x: outcome(lambda: setattr(x, "nothing", 1)) is not None,  # with another error each
            lambda z=z: vars_of(copy.copy(z)),
            lambda z=z: vars_of(copy.deepcopy(z)),
            lambda z=z: setattr(z, "b", "new"),
            lambda z=z: delattr(z, "b"),
            lambda z=z: vars_of(z),
            lambda cls=cls: str(inspect.signature(cls)),
        ]
        seen.append([outcome(call) for call in calls])
    assert seen[0] == seen[1]


def vars_of(x: object) -> list[object]:
    return [getattr(x, name) for name in ("a", "b", "c", "made", "aside", "late")]


@records.dataclass(slots=True, frozen=True)
class Point:
    x: int
    y: int = 0


@records.dataclass(slots=True)
class Chain:
    next: Chain | None = None


def test_frozen_instances_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)
    assert {Point(1), Point(1, 0)} == {Point(1)}


def test_an_instance_that_holds_itself_is_shown() -> None:
    x = Chain()
    x.next = x
    assert repr(x) == "Chain(next=...)"


def test_methods_are_made_when_they_are_used() -> None:
    @records.dataclass(slots=True)
    class Late:
        x: int

    for i in range(records.OFTEN):
        assert Late(i).x == i
        assert not inspect.isfunction(Late.__dict__["__init__"])
    assert Late(3).x == 3
    assert inspect.isfunction(Late.__dict__["__init__"])


def test_a_field_without_default_follows_none_that_has() -> None:
    with pytest.raises(TypeError):

        @records.dataclass(slots=True)
        class Wrong:
            x: int = 0
            y: int


def pairs(base: type) -> type:
    class Pair(base):
        """Two."""

        a: int
        b: str = "b"
        c: tuple[int, ...] = (1,)

        @property
        def both(self) -> str:
            return f"{self.a}{self.b}"

    return Pair


def test_named_tuples_are_those_of_the_standard_library() -> None:
    seen = []
    for base in (records.NamedTuple, typing.NamedTuple):
        cls = pairs(base)
        x, y = cls(1), cls(2, c=(3,), b="y")
        calls = [
            lambda cls=cls: re.sub(r"ForwardRef\((.*?)\)", r"\1", str(inspect.signature(cls))),
            lambda cls=cls: (cls._fields, cls._field_defaults, cls.__match_args__, cls.__mro__[1:], cls.__doc__, cls.__slots__),
            lambda x=x, y=y: (repr(x), x.both, x == (1, "b", (1,)), hash(x) == hash((1, "b", (1,))), x < y, [*y], y[1], len(y)),
            lambda y=y: y._replace(a=5),
            lambda y=y: y._replace(d=5),
            lambda cls=cls: cls(),
            lambda cls=cls: cls(1, "b", (), 4),
            lambda cls=cls: cls(1, d=4),
            lambda x=x: setattr(x, "a", 3),
            lambda x=x: setattr(x, "d", 3),
            lambda y=y: (copy.copy(y), copy.deepcopy(y)),
        ]
        seen.append([found if isinstance(found := outcome(call), type) else str(found) for call in calls])
    seen[1][4] = TypeError  # ValueError there
    assert seen[0] == seen[1]


class Named(records.NamedTuple):
    x: int
    y: int = 0


def test_named_tuples_are_pickled_and_matched() -> None:
    assert pickle.loads(pickle.dumps(Named(1, 2))) == Named(1, 2)
    assert isinstance(pickle.loads(pickle.dumps(Named(1))), Named)
    match Named(3, 4):
        case Named(x, y):
            assert (x, y) == (3, 4)
