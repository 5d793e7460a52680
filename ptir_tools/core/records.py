"""Dataclasses and named tuples whose methods are compiled on first use.

Those of the standard library compile their methods at import, used or not, and import `inspect`: that is a third of the start of
a command. Most classes have few instances in a command: the first are filled field by field, without a method of their own.

These are the same for those who read, type-check and use a class: `@dataclass(slots=True)` with `frozen`, `eq`, `repr` and
`kw_only`, `field`, `fields` and `replace`, `__post_init__`, `__match_args__`, inheritance, copies and pickles; and
`class Pair(NamedTuple)` with defaults, methods and `_replace`. Instances of dataclasses always have slots.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType, MethodType

from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Literal, TypeVar, dataclass_transform
    from typing import NamedTuple as NamedTuple

    T = TypeVar("T")
else:

    class _Tuples(type):
        """Makes a class of tuples of what is declared like one of `typing.NamedTuple`."""

        def __new__(meta, name: str, bases: tuple[type, ...], space: dict[str, object]) -> type:
            if not bases:
                return super().__new__(meta, name, bases, space)
            names = tuple(space.get("__annotations__", ()))
            defaults = {key: space.pop(key) for key in names if key in space}
            methods = {"__new__": _New(names, defaults), "__repr__": _repr, "__getnewargs__": _elements, "_replace": _replaced}
            getters = {key: _tuplegetter(i, "") for i, key in enumerate(names)}
            facts = {"_fields": names, "_field_defaults": defaults, "__match_args__": names, "__slots__": ()}
            return type(name, (tuple,), {**methods, **getters, **facts, **space})

    class NamedTuple(metaclass=_Tuples):
        """A tuple with names, declared as one of `typing.NamedTuple`."""

    def dataclass_transform(**_):
        return lambda decorator: decorator


class _Missing:
    def __repr__(self) -> str:
        return "<factory>"  # where a signature is shown


_MISSING = _Missing()
OFTEN = 8  # instances that are filled field by field; for more, compiling a method pays
_FIELDS = "__record_fields__"  # of a class: {name: Field}, those inherited first


class FrozenInstanceError(AttributeError):
    """A field of a frozen instance was assigned."""


class Field:
    """The declaration of a field."""

    __slots__ = ("compare", "default", "factory", "init", "kw_only", "name", "repr", "type")

    def __init__(self, default: object, factory: object, init: bool, repr: bool, compare: bool, kw_only: bool | None) -> None:
        self.default, self.factory, self.init, self.repr, self.compare, self.kw_only = (
            default,
            factory,
            init,
            repr,
            compare,
            kw_only,
        )
        self.name, self.type = "", ""

    @property
    def optional(self) -> bool:
        """Whether an instance can be made without it."""
        return self.default is not _MISSING or self.factory is not None


def field(
    *,
    default: object = _MISSING,
    default_factory: Callable[[], object] | None = None,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
    kw_only: bool | None = None,
) -> Any:
    """The options of one field, as those of `dataclasses.field`."""
    return Field(default, default_factory, init, repr, compare, kw_only)


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *, slots: Literal[True], frozen: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]:
    """The decorator, with the options of `dataclasses.dataclass`. Raises TypeError for a field that follows an optional one."""
    return lambda cls: _made(cls, frozen=frozen, eq=eq, shown=repr, kw_only=kw_only)


def fields(x: object) -> tuple[Field, ...]:
    """The fields of a class or an instance, in order. Raises AttributeError when it has none."""
    return tuple(getattr(x, _FIELDS).values())


def replace(x: T, /, **changes: object) -> T:
    """A copy with other values. Raises TypeError for a name that is not a field."""
    for f in fields(x):
        if f.init and f.name not in changes:
            changes[f.name] = getattr(x, f.name)
    return type(x)(**changes)


def _made(cls: type[T], *, frozen: bool, eq: bool, shown: bool, kw_only: bool) -> type[T]:
    space = {key: value for key, value in cls.__dict__.items() if key not in ("__dict__", "__weakref__")}
    own = dict(_own(space, kw_only))
    inherited: dict[str, Field] = {}
    for base in cls.__mro__[:0:-1]:
        inherited |= base.__dict__.get(_FIELDS, {})
    known = inherited | own
    space[_FIELDS] = known
    space["__slots__"] = tuple(name for name in own if name not in inherited)
    space["__qualname__"] = cls.__qualname__
    space.setdefault("__match_args__", tuple(f.name for f in known.values() if f.init and not f.kw_only))
    space.setdefault("__init__", _Init(known, frozen))
    if shown:
        space.setdefault("__repr__", _repr)
    if eq:
        key = _key([f.name for f in known.values() if f.compare])
        if space.get("__hash__") is None and (frozen or "__eq__" not in space):
            space["__hash__"] = _hash(key) if frozen else None
        space.setdefault("__eq__", _eq(key))
    if frozen:
        space.update(__setattr__=_refuse, __delattr__=_refuse)
        space.setdefault("__setstate__", _restore)
    result: type[T] = type.__call__(type(cls), cls.__name__, cls.__bases__, space)
    return result


def _own(space: dict[str, Any], kw_only: bool) -> Iterator[tuple[str, Field]]:
    """The fields that a class declares; their defaults leave its namespace, for instances have slots of these names."""
    late = False
    for name, kind in space.get("__annotations__", {}).items():
        if str(kind).startswith("ClassVar"):
            continue
        default = space.pop(name, _MISSING)
        f = default if isinstance(default, Field) else Field(default, None, True, True, True, None)
        f.name, f.type, f.kw_only = name, kind, kw_only if f.kw_only is None else f.kw_only
        if f.init and not f.kw_only:
            if late and not f.optional:
                raise TypeError(f"the field {name!r} has no default and follows one that has")
            late = f.optional
        yield name, f


class _New:
    """Is the `__new__` of a class of tuples until someone asks for it, and puts the real one there."""

    __slots__ = ("defaults", "names", "owner")

    def __init__(self, names: tuple[str, ...], defaults: dict[str, object]) -> None:
        self.names, self.defaults = names, defaults

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner

    def __get__(self, x: object, owner: type) -> Callable[..., object]:
        like = _new(len(self.names))
        code = like.__code__.replace(co_varnames=("_cls", *self.names))
        result: Any = FunctionType(code, like.__globals__, "__new__", tuple(self.defaults.values()))
        result.__qualname__, result.__module__ = f"{self.owner.__qualname__}.__new__", self.owner.__module__
        result.__annotations__ = dict(self.owner.__annotations__)
        type.__setattr__(self.owner, "__new__", staticmethod(result))
        return result  # type: ignore[no-any-return]


@cache
def _new(size: int) -> FunctionType:
    """The `__new__` of a tuple of so many fields, whatever they are called: compiling one costs more than most classes use."""
    names, known = "".join(f"_{i}, " for i in range(size)), {"_new": tuple.__new__}
    exec(f"def __new__(_cls, {names}): return _new(_cls, ({names}))", known)
    return known["__new__"]  # type: ignore[return-value]


class _Init:
    """Is `__init__` until a class asks for it or has many instances, and puts the real one there."""

    __slots__ = ("fields", "filled", "frozen", "owner", "plain")

    def __init__(self, fields: dict[str, Field], frozen: bool) -> None:
        self.fields, self.frozen = fields, frozen
        self.plain = [name for name, f in fields.items() if f.init and not f.kw_only]  # those that may be given by position
        self.filled = 0  # instances

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner

    def __get__(self, x: object, owner: type) -> Callable[..., None]:
        result: Any = self.owner.__dict__["__init__"]
        if result is self:
            self.filled += 1
            if x is not None and self.filled <= OFTEN:
                return MethodType(self.fill, x)
            result = self.compiled()
            type.__setattr__(self.owner, "__init__", result)
        method: Callable[..., None] = result.__get__(x, owner)
        return method

    def fill(self, x: object, /, *given: object, **named: object) -> None:
        """Set the fields of `x`. About wrong arguments the compiled method complains."""
        values = dict(zip(self.plain, given))  # noqa: B905
        if len(given) > len(values) or not values.keys().isdisjoint(named):
            return self.compiled()(x, *given, **named)
        values |= named
        put = object.__setattr__ if self.frozen else setattr
        for name, f in self.fields.items():
            if f.init and name in values:
                put(x, name, values.pop(name))
            elif f.factory is not None:
                make: Any = f.factory
                put(x, name, make())
            elif f.default is not _MISSING:
                put(x, name, f.default)
            elif f.init:
                return self.compiled()(x, *given, **named)
        if values:
            return self.compiled()(x, *given, **named)
        ended: Callable[[], None] | None = getattr(x, "__post_init__", None)
        if ended is not None:
            ended()
        return None

    def compiled(self) -> Callable[..., None]:
        names: dict[str, Any] = {"_MISSING": _MISSING, "_set": object.__setattr__}
        plain, named, lines = ["self"], list[str](), list[str]()
        for f in self.fields.values():
            names[f"_d_{f.name}"] = f.default if f.factory is None else f.factory
            given = f.name
            if f.init:
                optional = "" if not f.optional else f"=_d_{f.name}" if f.factory is None else "=_MISSING"
                (named if f.kw_only else plain).append(f.name + optional)
                if f.factory is not None:
                    given = f"_d_{f.name}() if {f.name} is _MISSING else {f.name}"
            elif f.optional:
                given = f"_d_{f.name}" if f.factory is None else f"_d_{f.name}()"
            else:
                continue
            lines.append(f"_set(self, {f.name!r}, {given})" if self.frozen else f"self.{f.name} = {given}")
        if hasattr(self.owner, "__post_init__"):
            lines.append("self.__post_init__()")
        head = ", ".join([*plain, "*", *named] if named else plain)
        exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), names)
        result: Callable[..., None] = names["__init__"]
        result.__qualname__, result.__module__ = f"{self.owner.__qualname__}.__init__", self.owner.__module__
        result.__annotations__ = {f.name: f.type for f in self.fields.values() if f.init} | {"return": None}
        return result


def _key(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    """The comparison key of an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple(getattr(x, name) for name in names)


def _eq(key: Callable[[object], tuple[object, ...]]) -> Callable[[object, object], bool]:
    def __eq__(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(key: Callable[[object], tuple[object, ...]]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:
        return hash(key(self))

    return __hash__


@recursive_repr()
def _repr(self: object) -> str:
    names: Any = getattr(self, "_fields", None) or [f.name for f in fields(self) if f.repr]
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__name__ if isinstance(self, tuple) else type(self).__qualname__}({shown})"


def _elements(self: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(self)


def _replaced(self: Any, **changes: object) -> object:
    if unknown := changes.keys() - set(self._fields):
        raise TypeError(f"{type(self).__qualname__} has no field {', '.join(sorted(unknown))}")
    return type(self)(*(changes.get(name, x) for name, x in zip(self._fields, self, strict=True)))


def _refuse(self: object, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"{type(self).__qualname__} is frozen: {name} cannot be changed")


def _restore(self: object, state: tuple[None, dict[str, object]]) -> None:
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
