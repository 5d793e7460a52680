"""The table of handlers of StableHLO ops, and the current op as a handler sees it.

A handler takes a `Site` and the operands. It returns a Tensor, or a tuple of them for several results. It raises Violation for
what PTIR cannot express. `spelled` maps words of the pretty form to attributes of the generic form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter as Argument
from inspect import signature

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.extents import Size
from ptir_tools.bridges.node import Node
from ptir_tools.bridges.stablehlo import literals
from ptir_tools.bridges.stablehlo.scopes import Scope
from ptir_tools.bridges.stablehlo.symbolic import SymbolicElements
from ptir_tools.bridges.stablehlo.syntax import Angle, Binding, Block, Clause, Keyed, Parameter, Product, Statement, Typed, Values
from ptir_tools.bridges.stablehlo.types import UNSUPPORTED, Tuple, refused, type_of
from ptir_tools.bridges.stablehlo.types import Token as TokenType
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import SI32, SI64, DType
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer as number_of
from ptir_tools.core.records import dataclass
from ptir_tools.core.spelling import did_you_mean, nearest, proposed
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeVar
from ptir_tools.core.types import UNKNOWN, Dim, Shape, TensorType
from ptir_tools.core.violations import Violation, attribute, require
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.grammars.parser import Token

if TYPE_CHECKING:
    pass

Plain = Any  # an attribute in Python: a number, text, list, dict or array
Handler = Callable[..., object]
H = TypeVar("H", bound=Handler)


@dataclass(slots=True, frozen=True)
class Entry:
    """A handler, its operand counts (`most` None: any number), and the names of attributes in the pretty form."""

    handler: Handler
    least: int
    most: int | None
    spelled: Mapping[str, str]
    values: bool  # it takes tuples and tokens, too


HANDLERS: dict[str, Entry] = {}
REFUSED: dict[str, str] = {}  # why an op has no handler
CUSTOM: dict[str, Handler] = {}  # the handlers of custom calls, by target


def handles(*names: str, values: bool = False, **spelled: str) -> Callable[[H], H]:
    """Register a function as the handler of ops; `spelled` maps words of the pretty form to attributes."""

    def register(handler: H) -> H:
        HANDLERS.update(dict.fromkeys(names, entry(handler, values, spelled)))
        return handler

    return register


def entry(handler: Handler, values: bool = False, spelled: Mapping[str, str] | None = None) -> Entry:
    """The entry of a handler. Its parameters after the first are the operands."""
    params = list(signature(handler).parameters.values())[1:]
    many = any(p.kind is Argument.VAR_POSITIONAL for p in params)
    fixed = [p for p in params if p.kind is Argument.POSITIONAL_OR_KEYWORD]
    least = sum(p.default is Argument.empty for p in fixed)
    return Entry(handler, least, None if many else len(fixed), spelled or {}, values)


def formula(*names: str) -> Callable[[H], H]:
    """Register a formula, a function of the operands alone, as the handler of ops."""

    def register(function: H) -> H:
        count = len(signature(function).parameters)
        HANDLERS.update(dict.fromkeys(names, Entry(lambda site, *xs: function(*xs), count, count, {}, False)))
        return function

    return register


def refuses(reason: str, *names: str) -> None:
    """Register the reason why ops have no handler."""
    REFUSED.update(dict.fromkeys(names, reason))


@dataclass(slots=True, frozen=True)
class Part:
    """A part of an axis with an extent that no op gives. Only a rotation may read it."""

    whole: Tensor
    axis: int
    start: Size
    stop: Size
    refusal: Violation


class Fields(dict[str, list[int]]):
    """The fields of a dialect attribute, as lists of integers."""

    def axes(self, name: str) -> list[int]:
        """A list; absent, it is empty."""
        return self.get(name, [])

    def number(self, name: str) -> int:
        """An integer; absent, it is 0. Raises Violation for a list."""
        result = self.get(name, [0])
        require(len(result) == 1, "InvalidAttributeValue", f"`{name}` is not an integer")
        return result[0]


class Site(Node):
    """The StableHLO op that is translated: its attributes, regions and declared result types, and the block that gets the new
    ops."""

    def __init__(self, scope: Scope, statement: Statement, spelled: Mapping[str, str]) -> None:
        super().__init__(statement.name, scope.block)
        self.scope, self.statement, self.spelled = scope, statement, spelled
        self.words: list[str] = []  # what is neither operand nor attribute
        self.names: list[Token] = []  # of the operands
        self.bindings: list[Binding] = []  # of a while loop
        self.attrs: dict[str, object] = {}
        self.asked: set[str] = set()  # the names of attributes that the handler has read
        self.parameters: list[list[Parameter]] = []  # of clauses, as those of a reducer
        self.arguments: list[Parameter] = []  # of a region, before it
        self.regions: list[Block] = []
        inits: list[Token] = []
        self._collect(statement.pieces, inits)
        self._collect(statement.tails, inits)
        self.names += inits

    def _collect(self, pieces: Sequence[object], inits: list[Token]) -> None:
        for piece in pieces:
            if isinstance(piece, Token):
                if piece.type == "SSA":
                    self.names.append(piece)
                elif piece.type == "DENSE":
                    self.attrs["value"] = piece
                elif piece.type == "SYMBOL":
                    self.attrs["callee"] = piece
                else:
                    self.words.append(piece.strip('"'))
            elif isinstance(piece, Angle):
                self.attrs |= piece
            elif isinstance(piece, Values):
                self.attrs["subscript"] = piece
            elif isinstance(piece, Keyed):
                key = "applies" if piece.key is piece.value else str(piece.key)
                self.attrs[self.spelled.get(key, key)] = piece.value
            elif isinstance(piece, Block):
                self.regions.append(piece)
            elif isinstance(piece, Binding):
                if piece.init:
                    self.names.append(piece.first)
                    inits.append(piece.second)
                else:
                    self.bindings.append(piece)
                    self.names.append(piece.second)
            elif isinstance(piece, list):
                self._collect(piece, inits)
            elif isinstance(piece, Parameter):
                self.arguments.append(piece)
            elif isinstance(piece, Clause):
                self.parameters.append(piece.value)

    @property
    def symbolic(self) -> SymbolicElements:
        """The symbolic elements of small integer tensors."""
        return self.scope.reader.symbolic

    # Types

    @property
    def types(self) -> list[TensorType | TokenType | Tuple]:
        """The declared types of the results; an extent `?` is UNKNOWN."""
        s = self.statement
        count = sum(n for _, n in s.results)
        texts = s.returned if s.returned is not None else s.given or []
        if s.returned is None and len(texts) != count:
            texts = texts[-1:] * count
        require(len(texts) == count, "OperandCountMismatch", f"{count} results, {len(texts)} types")
        return [self.scope.type(t) for t in texts]

    @property
    def type(self) -> TensorType:
        """The declared type of the only result."""
        result = self.types
        require(len(result) == 1, "OperandCountMismatch", f"one result is expected, there are {len(result)}")
        return self.tensor_type(result[0])

    def tensor_type(self, t: object) -> TensorType:
        """`t`, which must be a tensor's."""
        if not isinstance(t, TensorType):
            raise Violation("OperandTypeMismatch", f"a tensor is expected, not {t}")
        return t

    @property
    def dtype(self) -> DType:
        """The dtype of the only result."""
        return self.type.dtype

    # Attributes

    def has(self, name: str) -> bool:
        """Whether the attribute is given."""
        self.asked.add(name)
        return name in self.attrs

    def value(self, name: str, default: object = ...) -> Plain:
        """The attribute as plain Python. Raises Violation when it is missing without a default."""
        self.asked.add(name)
        if name not in self.attrs:
            require(default is not ..., "MissingAttribute", f"`{name}` is missing")
            return default
        return plain(self.attrs[name], self.scope.reader.text)

    def misspelled(self, missing: bool = False) -> Violation | None:
        """The Violation for an attribute of the pretty form that was not read. It is nearly called like one that was, or the only
        one that was is `missing`."""
        words = {self.spelled_as(name): name for name in self.asked if name not in self.attrs}
        for piece in (x for x in (*self.statement.pieces, *self.statement.tails) if isinstance(x, Keyed)):
            key = str(piece.key)
            if piece.key is piece.value or self.spelled.get(key, key) in self.asked:
                continue
            if meant := nearest(key, words) or (next(iter(words)) if missing and len(words) == 1 else None):
                message, help = f"`{self.name}` has no attribute `{key}`", did_you_mean([meant])
                return Violation("UnknownAttribute", message, help=help, loc=piece.key.loc, instead=meant)
        return None

    def spelled_as(self, name: str) -> str:
        """The word of the pretty form for an attribute."""
        return next((word for word, other in self.spelled.items() if other == name), name)

    def _wrong(self, name: str, expected: str) -> Violation:
        return Violation("InvalidAttributeValue", f"`{name}` is not {expected}")

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of integers."""
        result = self.value(name, ... if default is None else default)
        result = list(_flat(result))
        if not all(isinstance(x, (int, bool)) for x in result):
            raise self._wrong(name, "a list of integers")
        return tuple(map(int, result))

    def axes(self, name: str, rank: int, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of different axes of a tensor of `rank`."""
        return checked_axes(self.ints(name, default), rank, name)

    def counts(self, name: str, rank: int, least: int, default: int | None = None) -> tuple[int, ...]:
        """A list of one integer per axis, each at least `least`; absent, all are `default`."""
        result = self.ints(name, None if default is None else [default] * rank)
        require(len(result) == rank, "InvalidAttributeValue", f"`{name}` has {len(result)} entries, {rank} are expected")
        require(all(n >= least for n in result), "InvalidAttributeValue", f"`{name}` has an entry under {least}")
        return result

    def pairs(self, name: str, rank: int) -> tuple[tuple[int, int], ...]:
        """A pair of integers per axis; absent, zeros."""
        flat = self.ints(name, [0] * (2 * rank))
        require(len(flat) == 2 * rank, "InvalidAttributeValue", f"`{name}` does not have a pair for each of {rank} axes")
        return tuple(zip(flat[0::2], flat[1::2], strict=True))

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer."""
        result = list(_flat(self.value(name, ... if default is None else default)))
        if len(result) != 1 or not isinstance(result[0], (int, bool)):
            raise self._wrong(name, "an integer")
        return int(result[0])

    def axis(self, name: str, rank: int) -> int:
        """An axis of a tensor of `rank`."""
        return checked_axes([self.integer(name)], rank, name)[0]

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        return bool(self.integer(name, int(default)))

    def word(self, name: str, default: str | None = None) -> str:
        """The word of an enumeration: `LT`, `#stablehlo<comparison_direction LT>` and `"LT"` alike."""
        result = self.value(name, ... if default is None else default)
        if not isinstance(result, str):
            raise self._wrong(name, "a word")
        return result.rstrip(">").replace("<", " ").split(" ")[-1].strip('"')

    def fields(self, name: str) -> Fields:
        """The fields of `#stablehlo.gather<a = [0], b = 1>`."""
        result = self.value(name, "<>")
        if not isinstance(result, str) or "<" not in result:
            raise self._wrong(name, "a dialect attribute")
        fields = re.findall(r"(\w+)\s*=\s*(\[[^\]]*\]|-?\w+)", result)
        return Fields({k: list(map(number_of, re.findall(r"\d+", v))) for k, v in fields})

    def literal(self, name: str, t: TensorType) -> Literal:
        """A dense literal, of type `t`."""
        result = self.attrs.get(name)
        text = result.value if isinstance(result, Typed) else result
        if not isinstance(text, Token) or text.type != "DENSE":
            raise (
                refused(f"`{name}` is not a dense literal")
                if text is not None
                else Violation("MissingAttribute", f"`{name}` is missing")
            )
        return literals.dense(text, t, self.scope.reader.text)

    # Building

    def splat(self, one: Literal, shape: Shape) -> Tensor:
        """The scalar literal `one` in `shape`, whose extents must be known. Raises Violation."""
        return super().splat(one, self.known(shape))

    def known(self, shape: Shape) -> Shape:
        """`shape`, whose extents must all be known. Raises Violation."""
        if UNKNOWN in shape:
            raise refused("the extents of the result depend on data")
        return shape

    def broadcast(self, x: Tensor, shape: Shape, dims: Sequence[int]) -> Tensor:
        """`x` broadcast as by `broadcast_in_dim`: its axis `i` is axis `dims[i]` of `shape`."""
        if x.shape == tuple(shape) and tuple(dims) == tuple(range(len(dims))):
            return x
        order = sorted(range(len(dims)), key=lambda i: dims[i])
        if order != list(range(len(dims))):
            x = x.transpose(order)
        placed: list[Dim] = [1] * len(shape)
        for i, axis in enumerate(sorted(dims)):
            placed[axis] = x.shape[i]
        if tuple(placed) != x.shape:
            leading = len(placed) - len(x.shape)
            if tuple(placed[leading:]) != x.shape or set(placed[:leading]) - {1}:
                x = x.reshape(placed)
        if x.shape == tuple(shape):
            return x
        return x.broadcast_to(shape)

    def read(self, x: Tensor, what: str) -> Array:
        """The elements of `x`. Raises Violation unless it is a constant."""
        if (result := known(x)) is None:
            raise refused(f"`{what}` is not known when the program is read")
        return result

    def each(self, fields: Sequence[object]) -> Iterator[Tensor]:
        """The fields, which must be tensors. Raises Violation for a tuple or token."""
        for x in fields:
            if isinstance(x, Part):
                raise x.refusal
            if not isinstance(x, Tensor):
                raise Violation("OperandTypeMismatch", "a tensor is expected, not a tuple or token")
            yield x


def unknown_op(name: str, known: Mapping[str, object] = HANDLERS) -> Violation:
    """The Violation for an op without a handler, with the known ones that it may mean."""
    dialect = name.partition(".")[0]
    if dialect not in ("stablehlo", "chlo", "mhlo"):
        meant = f"stablehlo.{name.rpartition('.')[2]}"
        help = did_you_mean([meant]) if meant in known else proposed(meant, known, "{}")[0]
        return refused(f"`{name}` is not an op of StableHLO", help)
    message, short = f"there is no op `{name}`", name.partition(".")[2]
    if (other := _OTHERS.get(short)) is not None:
        op, _, how = other.partition(" ")
        if how:
            return Violation(UNSUPPORTED, message, help=f"`{op}` {how}", at=name)
        return Violation(UNSUPPORTED, message, help=did_you_mean([op]), at=name, instead=op)
    begun = [each for each in known if each.startswith(name)]
    help, instead = proposed(name, known, "{}", "{}")
    if begun:
        help, instead = did_you_mean(begun), begun[0] if len(begun) == 1 else None
    return Violation(UNSUPPORTED, message, help=help, at=name, instead=instead)


# Names that other libraries have, and what StableHLO has for them: an op, or an op and how it computes them.
_OTHERS = {
    **dict.fromkeys(("matmul", "mm", "bmm", "einsum", "gemm", "tensordot"), "stablehlo.dot_general"),
    **dict.fromkeys(("cast", "astype", "to"), "stablehlo.convert"),
    **dict.fromkeys(("where", "cond_select"), "stablehlo.select"),
    **dict.fromkeys(("permute", "permute_dims"), "stablehlo.transpose"),
    **dict.fromkeys(("view", "squeeze", "unsqueeze", "expand_dims", "flatten"), "stablehlo.reshape"),
    **dict.fromkeys(("expand", "broadcast_to", "tile"), "stablehlo.broadcast_in_dim"),
    **dict.fromkeys(("less", "greater", "equal", "not_equal", "less_equal", "greater_equal", "lt", "gt", "eq", "ne", "le", "ge"),
        "stablehlo.compare compares, in a direction such as LT"),
    **dict.fromkeys(("sum", "reduce_sum"), "stablehlo.reduce sums with `applies stablehlo.add`"),
    **dict.fromkeys(("prod", "reduce_prod"), "stablehlo.reduce multiplies with `applies stablehlo.multiply`"),
    **dict.fromkeys(("reduce_max", "amax"), "stablehlo.reduce finds it with `applies stablehlo.maximum`"),
    **dict.fromkeys(("reduce_min", "amin"), "stablehlo.reduce finds it with `applies stablehlo.minimum`"),
    **dict.fromkeys(("argmax", "argmin"), "stablehlo.reduce finds it on pairs of elements and indices"),
    "mean": "stablehlo.reduce sums, and stablehlo.divide divides by the count",
    "relu": "stablehlo.maximum with 0 computes it", "softmax": "stablehlo.exponential, reduce and divide compute it",
    "sigmoid": "stablehlo.logistic", "mod": "stablehlo.remainder", "neg": "stablehlo.negate", "clip": "stablehlo.clamp",
    "log1p": "stablehlo.log_plus_one", "expm1": "stablehlo.exponential_minus_one", "erf": "chlo.erf", "top_k": "chlo.top_k",
    "round": "stablehlo.round_nearest_even", "conv": "stablehlo.convolution", "conv2d": "stablehlo.convolution",
    "concat": "stablehlo.concatenate", "const": "stablehlo.constant", "arange": "stablehlo.iota",
}  # fmt: skip


def sizes_of(x: Tensor) -> list[int]:
    """The extents of a tensor, which must be numbers. Raises Violation for a symbol."""
    if not all(isinstance(d, int) for d in x.shape):
        raise refused("an extent is a symbol")
    return [d for d in x.shape if isinstance(d, int)]


def checked_axes(axes: Sequence[int], rank: int, name: str, first: int = 0) -> tuple[int, ...]:
    """`axes`, all different, of a tensor of `rank`. In the text, `first` other numbers come before them. Raises Violation."""
    for i, a in enumerate(axes):
        at = attribute(name, i + first)
        require(0 <= a < rank, "InvalidAttributeValue", f"`{name}`: {a} is not an axis of a tensor of rank {rank}", at=at)
        require(a not in axes[:i], "InvalidAttributeValue", f"`{name}` names axis {a} twice", at=at)
    return tuple(axes)


def index_dtype(elements: int) -> DType:
    """The narrower index dtype that can number so many elements."""
    return SI32 if elements < 2**31 else SI64


def plain(value: object, text: str = "") -> Plain:
    """An attribute value in Python: numbers, texts, lists, dicts."""
    if isinstance(value, Typed):
        if isinstance(value.value, Token) and value.value.type == "DENSE":
            t = type_of(str(value.type)) if value.type is not None else None
            if not isinstance(t, TensorType):
                raise Violation("InvalidAttributeValue", "a dense literal needs the type of a tensor")
            return arrays.from_literal(literals.dense(value.value, t, text))
        return plain(value.value, text)
    if isinstance(value, Token):
        return _word(value)
    if isinstance(value, Product):
        return [plain(x, text) for x in value.factors]
    if isinstance(value, Angle):
        return {k: plain(v, text) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(x, text) for x in value]
    return True if value is None else value


_ITEM = regex(r"true|false|-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")


def _flat(value: object) -> Iterator[Plain]:
    """The items of nested lists or of an array."""
    if isinstance(value, list | tuple):
        for x in value:
            yield from _flat(x)
    elif hasattr(value, "tolist"):
        yield from _flat(value.tolist())
    else:
        yield value


def _word(token: Token) -> Plain:
    if token.type == "NUMBER":
        if token in ("true", "false"):
            return token == "true"
        if "x" in token:
            return number_of(token, 0)
        return float(token) if re.search(r"[.eE]", token) else number_of(token)
    if token.type == "ARRAY":
        words = re.findall(r"[^\s,]+", token[6:-1].partition(":")[2])
        if not all(map(_ITEM.fullmatch, words)):
            raise Violation("InvalidAttributeValue", f"`{token}` is not a list of numbers")
        return [w == "true" if w in ("true", "false") else float(w) if re.search(r"[.eE]", w) else number_of(w, 0) for w in words]
    return str(token).strip('"')


__all__ = ["HANDLERS", "REFUSED", "Entry", "Site", "Tensor", "handles", "plain", "refused", "refuses"]
