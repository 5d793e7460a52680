"""Dataclasses and named tuples whose methods are compiled on first use.

Those of the standard library compile their methods at import, used or not, and import `inspect`: `ptir verify` would take more
than twice the time. Here a constructor is compiled when it is first used. The constructor of a dataclass is compiled even later:
most classes have few instances in a command, and the first ones are filled field by field.

Read `_Late` first: it is in place of a constructor until then.

These are the same for those who read, type-check and use a class: `@dataclass(slots=True)` with `frozen`, `eq`, `repr` and
`kw_only`, `field`, `fields` and `replace`, `__post_init__`, `__match_args__`, inheritance, copies and pickles; and
`class Pair(NamedTuple)` with defaults, methods and `_replace`. Instances of dataclasses always have slots.
"""

from __future__ import annotations

from operator import attrgetter
from reprlib import recursive_repr
from types import MethodType

from ptir_tools.core.cpython import element
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Literal, TypeVar, dataclass_transform
    from typing import NamedTuple as NamedTuple

    T = TypeVar("T")
else:

    class _Tuples(type):
        """Makes a tuple class from a declaration like that of `typing.NamedTuple`."""

        def __new__(meta, name: str, bases: tuple[type, ...], space: dict[str, object]) -> type:
            if not bases:
                return super().__new__(meta, name, bases, space)
            names = tuple(space.get("__annotations__", ()))
            defaults = {key: space.pop(key) for key in names if key in space}
            methods = {
                "__new__": _Late(lambda owner: _new(owner, names, defaults)),
                "__repr__": _repr,
                "__getnewargs__": _elements,
                "_replace": _replaced,
            }
            getters = {key: element(i, "") for i, key in enumerate(names)}
            facts = {"_fields": names, "_field_defaults": defaults, "__match_args__": names, "__slots__": ()}
            return type(name, (tuple,), {**methods, **getters, **facts, **space})

    class NamedTuple(metaclass=_Tuples):
        """A tuple with names, declared like `typing.NamedTuple`."""

    def dataclass_transform(**_):
        return lambda decorator: decorator


class _Missing:
    def __repr__(self) -> str:
        return "<factory>"  # in the text of a signature


_MISSING = _Missing()
OFTEN = 8  # instances that are filled field by field; compiling a method is faster for more
_FIELDS = "__record_fields__"  # of a class: {name: Field}, those inherited first


class FrozenInstanceError(AttributeError):
    """A field of a frozen instance was assigned."""


class Field:
    """The declaration of a field."""

    __slots__ = ("compare", "default", "factory", "init", "kw_only", "name", "repr", "type")

    def __init__(self, default: object, factory: object, init: bool, repr: bool, compare: bool, kw_only: bool | None) -> None:
        self.default, self.factory, self.init = default, factory, init
        self.repr, self.compare, self.kw_only = repr, compare, kw_only
        self.name, self.type = "", ""

    @property
    def optional(self) -> bool:
        """Whether an instance can be created without it."""
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
    """The options of one field, like those of `dataclasses.field`."""
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
    """The fields that a class declares. Their defaults are removed from its namespace, because instances have slots of these
    names."""
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


class _Late:
    """A placeholder for a method. At its first use it is replaced by the result of `make` for the class."""

    __slots__ = ("make", "name", "owner")

    def __init__(self, make: Callable[[type], Any]) -> None:
        self.make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, x: object, owner: type) -> Callable[..., Any]:
        made = self.make(self.owner)
        type.__setattr__(self.owner, self.name, made)
        return made.__get__(x, owner)  # type: ignore[no-any-return]


def _compiled(owner: type, name: str, parameters: str, lines: list[str], names: dict[str, object]) -> Any:
    """Compile the method `name` of `owner` from these lines, with the names `names`."""
    exec(f"def {name}({parameters}):\n " + "\n ".join(lines), names)
    made: Any = names[name]
    made.__qualname__, made.__module__ = f"{owner.__qualname__}.{name}", owner.__module__
    return made


def _new(owner: type, names: tuple[str, ...], defaults: dict[str, object]) -> object:
    """`__new__` of a class of tuples."""
    listed = "".join(f"{name}, " for name in names)
    made = _compiled(owner, "__new__", f"_cls, {listed}", [f"return _new(_cls, ({listed}))"], {"_new": tuple.__new__})
    made.__defaults__ = tuple(defaults.values())
    made.__annotations__ = dict(owner.__annotations__)
    return staticmethod(made)


class _Init(_Late):
    """A placeholder for `__init__` of a dataclass, until it is used as a function or the class has many instances."""

    __slots__ = ("fields", "filled", "frozen", "plain")

    def __init__(self, fields: dict[str, Field], frozen: bool) -> None:
        super().__init__(self.compiled)
        self.fields, self.frozen = fields, frozen
        self.plain = [name for name, f in fields.items() if f.init and not f.kw_only]  # fields that may be given by position
        self.filled = 0  # instances

    def __get__(self, x: object, owner: type) -> Callable[..., Any]:
        self.filled += 1
        return super().__get__(x, owner) if x is None or self.filled > OFTEN else MethodType(self.fill, x)

    def fill(self, x: object, /, *given: object, **named: object) -> None:
        """Set the fields of `x`. For wrong arguments the compiled method raises the error."""
        values = dict(zip(self.plain, given))  # noqa: B905
        if len(given) > len(values) or not values.keys().isdisjoint(named):
            return self.compiled(self.owner)(x, *given, **named)
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
                return self.compiled(self.owner)(x, *given, **named)
        if values:
            return self.compiled(self.owner)(x, *given, **named)
        ended: Callable[[], None] | None = getattr(x, "__post_init__", None)
        if ended is not None:
            ended()
        return None

    def compiled(self, owner: type) -> Callable[..., None]:
        """The function that does the same."""
        names: dict[str, object] = {"_MISSING": _MISSING, "_set": object.__setattr__}
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
        if hasattr(owner, "__post_init__"):
            lines.append("self.__post_init__()")
        head = ", ".join([*plain, "*", *named] if named else plain)
        made: Callable[..., None] = _compiled(owner, "__init__", head, lines or ["pass"], names)
        made.__annotations__ = {f.name: f.type for f in self.fields.values() if f.init} | {"return": None}
        return made


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
