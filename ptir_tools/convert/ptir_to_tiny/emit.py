"""A Tiny graph in the making: what the rules of `ptir_tiny` build with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import copysign
from typing import Any, TypeAlias

from ptir_tools.convert.naming import Names
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation, require
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.ir import Element, Literal, Op, Operand, Program, Region, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import Shape, TensorType, TupleType, Type, tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from ptir_tools.dialects.tiny.expressions import parse
from ptir_tools.dialects.tiny.ops.rules import SPELLED
from ptir_tools.dialects.tiny.pieces import Pieces
from ptir_tools.dialects.tiny.text.args import AXIS
from ptir_tools.rewrite.constants import literal_of

NOT_TRANSLATABLE = "NotTranslatable"
CONST_POOL = "const_pool"

_SELECTION = "Tiny's core has no comparison: only `select(compare_gt(x, 0), x, 0)`, which is RELU"
_DATA = "indices that depend on data cannot be an index map"
_RANDOM = "a graph is pure: draw the numbers outside and pass them in"

# Why an op cannot be translated, or what would help, where more can be said than that Tiny has nothing like it.
HELP = {
    **{f"compare_{kind}": _SELECTION for kind in ("lt", "le", "gt", "ge", "eq", "ne")},
    **dict.fromkeys(("gather", "scatter_add", "scatter_reduce", "dynamic_slice", "dynamic_update_slice"), _DATA),
    **dict.fromkeys(("rng_uniform", "rng_normal"), _RANDOM),
    "log": "Tiny's core has no LOG2",
    "while": "only a trip count that is known unrolls: write it as a scan",
    "custom_call": "`ptir opt -p inline-hints` or a decomposition of the kernel would leave plain ops",
}

# What a PTIR value becomes: a node, an immediate (every element is that number), or these for the elements of a tuple.
Data: TypeAlias = "Operand | tuple[Data, ...]"
Rule = Callable[["Emit"], Data]


def flatten(data: Data) -> Iterator[Operand]:
    """What the leaves of a value became."""
    if isinstance(data, tuple):
        for part in data:
            yield from flatten(part)
    else:
        yield data


class Translation:
    """The graph, and what all rules share. `told` holds the ops that were refused, since an unrolled body is refused once;
    `broken` the values that they leave out, whose users stay silent."""

    def __init__(self, program: Program, rules: Mapping[str, Rule], diagnostics: Diagnostics, options: Options) -> None:
        self.function = program.main
        self.rules = rules
        self.diagnostics = diagnostics
        self.options = options
        self.program, self.builder = single_function(load_dialect("tiny"))
        self.labels: list[str] = self.program.main.attrs.setdefault("input_names", [])
        blocks = list(program.blocks())
        self.fresh = Names(v.name for b in blocks for v in (*b.params, *(v for op in b.body for v in op.results)))
        self.pool: dict[object, Value] = {}
        self.told: set[Op] = set()
        self.broken: set[Operand] = set()

    def run(self) -> None:
        """Translate the entry, or report why not."""
        before = self.diagnostics.errors
        parameters = self._parameters()
        try:
            results = self.block(self.function, parameters, outer=True)
            self.builder.results(*(x for pair in zip(self.function.results, results, strict=True) for x in self._outputs(*pair)))
        except Violation as violation:
            message = f"a result is a constant: {violation.message}"
            self.diagnostics.error(NOT_TRANSLATABLE, message, self.function.return_loc or self.function.loc, help=violation.help)
        if self.diagnostics.errors == before:
            self._require_few_pieces()

    def _outputs(self, x: Operand, data: Data) -> list[Operand]:
        """The nodes that a result is: one, or one per element of a tuple. Raises Violation."""
        if isinstance(data, tuple):
            return list(flatten(data))
        if not isinstance(data, Literal):
            return [data]
        name = x.name if isinstance(x, Value) else self.fresh.between("result")
        t: Any = operand_type(x)
        if not t.shape:
            return [self.pooled(data, name=name)]
        scalar = self.pooled(data)
        return [self.builder.op("EXPAND", scalar, result_shape=t.shape, broadcast_dimensions=(), name=name)]

    def _parameters(self) -> list[Data]:
        """An INPUT for each parameter, under its name."""
        names = self.function.attrs.get("input_names") or [p.name for p in self.function.params]
        self.labels.extend(names)
        found: list[Data] = []
        for p, name in zip(self.function.params, names, strict=True):
            try:
                found.append(self.builder.param(sayable(p.type), p.name))
            except Violation as violation:
                at = self.function.attrs.get("input_locs", {}).get(name, self.function.loc)
                self.diagnostics.error(NOT_TRANSLATABLE, f"parameter {name}: {violation.message}", at, help=violation.help)
                found.append(self.placeholder(p.type))
        return found

    def placeholder(self, t: Type) -> Data:
        """What stands for a value in error: it has the type, and nothing computes it."""
        if isinstance(t, TupleType):
            return tuple(map(self.placeholder, t.elements))
        made = Value(t)
        self.broken.add(made)
        return made

    def block(self, block: Region, arguments: Sequence[Data], *, outer: bool = False) -> list[Data]:
        """What the results of `block` become when its parameters are `arguments`. Nodes of the entry keep their names."""
        values: dict[Value, Data] = dict(zip(block.params, arguments, strict=True))
        needed = _needed(block)
        kept = {x for x in block.results if isinstance(x, Value)} if outer else set()
        for op in block.body:
            if op in needed:
                values[op.results[0]] = Emit(self, op, values, outer, op.results[0] in kept).result()
        return [read(self, x, values) for x in block.results]

    def pooled(self, literal: Literal, wish: str = "const", name: str = "") -> Value:
        """The INPUT that stands for a constant, called `name` or like `wish`; its value goes to `Options.constants`. Raises
        Violation."""
        constants = self.options.constants
        help = "`--constants FILE.npz` makes it an INPUT and writes its value there"
        require(constants is not None, NOT_TRANSLATABLE, "Tiny has no constants but immediates", help=help)
        require(literal.data is not None, NOT_TRANSLATABLE, "the payload of the constant is not in the file")
        assert constants is not None
        if (found := self.pool.get(literal.key)) is not None:
            return found
        sayable(literal.type)
        made = self.builder.param(literal.type, name or self.fresh.between(wish))
        label = made.name
        while label in self.labels:
            label = self.fresh.between(made.name)
        self.labels.append(label)
        self.program.main.attrs.setdefault("storage", {})[made.name] = CONST_POOL
        constants[label] = literal
        self.pool[literal.key] = made
        return made

    def _require_few_pieces(self) -> None:
        """Tiny's own rule on what the translation made of windows and pads."""
        pieces = Pieces(self.options.limits.pieces)
        for p in self.program.main.params:
            pieces.start(p)
        for op in self.program.main.body:
            try:
                pieces.follow(op)
            except Violation as violation:
                self.diagnostics.error(NOT_TRANSLATABLE, violation.message, op.loc, help=violation.help)


def _needed(block: Region) -> set[Op]:
    """The ops that the results need, those that a RELU absorbs left out."""
    found: set[Op] = set()
    stack = [x.value if isinstance(x, Element) else x for x in block.results if not isinstance(x, Literal)]
    while stack:
        op = stack.pop().op
        if op is not None and op not in found:
            found.add(op)
            stack += _read_by(op)
    return found


def _read_by(op: Op) -> list[Value]:
    """The values that the node for `op` needs: without what a RELU or an index map absorbs."""
    if (x := relu_operand(op)) is not None:
        return [x]
    return list(op.values())[:1] if taken(op) is not None else list(op.values())


def taken(op: Op) -> Literal | None:
    """The constant indices of a `take`."""
    indices = literal_of(op.operands[1]) if op.defn.short == "take" else None
    return None if indices is None or indices.data is None or not indices.type.is_static else indices


def relu_operand(op: Op) -> Value | None:
    """`x` where the op is `select(compare_gt(x, 0), x, 0)`, which is RELU."""
    if op.defn.short != "select":
        return None
    pred, x, zero = op.operands
    test = pred.op if isinstance(pred, Value) else None
    if test is None or test.defn.short != "compare_gt" or not isinstance(x, Value) or test.operands[0] is not x:
        return None
    return x if all(map(_is_zero, (zero, test.operands[1]))) else None


def _is_zero(x: Operand) -> bool:
    """Whether every element of `x` is a constant positive zero."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.short in ("broadcast_to", "reshape", "constant"):
        x = x.op.attr("value") if x.op.defn.short == "constant" else x.op.operands[0]
    return isinstance(x, Literal) and x.data is not None and len(x.data) > 0 and not any(x.data)


def read(to: Translation, x: Operand, values: Mapping[Value, Data]) -> Data:
    """What an operand became; a constant that is no immediate becomes an INPUT. Raises Violation."""
    if isinstance(x, Element):
        found = values[x.value]
        return found[x.index] if isinstance(found, tuple) else found
    return values[x] if isinstance(x, Value) else constant(to, x)


def constant(to: Translation, literal: Literal, name: str = "") -> Operand:
    """An immediate where all elements are one number, else an INPUT. Raises Violation."""
    if literal.data is not None and (literal.splat or (literal.type.is_static and literal.type.count == 1)):
        sayable(tensor(literal.type.dtype))
        return Literal(tensor(literal.type.dtype), literal.data)
    return to.pooled(literal, name=name)


def sayable(t: Type) -> TensorType:
    """`t`, a tensor whose dtype and extents Tiny has. Raises Violation("NotTranslatable")."""
    if not isinstance(t, TensorType):
        raise Violation(NOT_TRANSLATABLE, f"Tiny has no {t}")
    require(t.dtype in SPELLED, NOT_TRANSLATABLE, f"Tiny has no {t.dtype}, only {', '.join(d.name for d in SPELLED)}")
    for d in t.shape:
        require(isinstance(d, int) or _spelled(d.name), NOT_TRANSLATABLE, f"Tiny cannot spell the symbol {d}")
    return t


def _spelled(name: str) -> bool:
    """Whether Tiny reads an extent of this name as it stands: a symbol, or an expression in normal form."""
    try:
        return AXIS.fullmatch(name) is not None or str(parse(name)) == name
    except Violation:
        return False


def number(scalar: Scalar, dtype: DType) -> int | float | bool:
    """The value of a PAD or a fill: positive zero is the default, an integer 0."""
    value: Any = scalar.value
    if dtype is I1:
        return bool(value)
    return 0 if value == 0 and copysign(1, value) > 0 else value


class Emit:
    """Builds what one op becomes. `last` makes its final node, which takes the value's name where it is of the entry."""

    def __init__(self, to: Translation, op: Op, values: dict[Value, Data], outer: bool, returned: bool) -> None:
        self.to = to
        self.op = op
        self.values = values
        self.outer = outer
        self.returned = returned  # by the entry: the value must be a node of this name
        self.start = len(to.builder.block.body)
        self.type: TensorType = op.results[0].type  # type: ignore[assignment]

    def result(self) -> Data:
        """What the op becomes; after an error, a value of its type that nothing computes."""
        short = self.op.defn.short
        try:
            rule = self.to.rules.get(short)
            if rule is None:
                raise Violation(NOT_TRANSLATABLE, f"Tiny has nothing like {short}", help=HELP.get(short))
            if self.to.broken and self._is_broken():
                return self.to.placeholder(self.op.results[0].type)
            if isinstance(self.type, TensorType):
                sayable(self.type)
            return rule(self)
        except Violation as violation:
            if self.op not in self.to.told:
                self.to.told.add(self.op)
                message = violation.message if short in violation.message else f"{short}: {violation.message}"
                self.to.diagnostics.error(NOT_TRANSLATABLE, message, self.op.loc, help=violation.help)
            return self.to.placeholder(self.op.results[0].type)

    def _is_broken(self) -> bool:
        """Whether an operand is in error."""
        found = [self.values[v] for v in self.op.values() if v in self.values]
        return any(x in self.to.broken for x in flatten(tuple(found)))

    def note(self, message: str) -> None:
        """Say under which condition the op was translated."""
        self.to.diagnostics.note("ConditionalTranslation", message, self.op.loc)

    # Operands

    def data(self, i: int) -> Data:
        """Operand `i` of the op."""
        return read(self.to, self.op.operands[i], self.values)

    def operand(self, i: int) -> Operand:
        """Operand `i` of the op, which is no tuple: a node, or an immediate."""
        found = self.data(i)
        if isinstance(found, tuple):
            raise Violation(NOT_TRANSLATABLE, "Tiny has no tuples")
        return found

    def shape_of(self, i: int) -> Shape:
        """The shape of operand `i` in PTIR."""
        t: Any = operand_type(self.op.operands[i])
        shape: Shape = t.shape
        return shape

    def node(self, i: int) -> Value:
        """Operand `i` as a node of its shape: an immediate becomes an INPUT. Raises Violation where it may not."""
        return self.whole(self.operand(i), self.shape_of(i))

    def whole(self, x: Operand, shape: Shape) -> Value:
        """`x` as a node: an immediate as an INPUT, expanded to `shape`."""
        if isinstance(x, Value):
            return x
        assert isinstance(x, Literal)
        try:
            scalar = self.to.pooled(x)
        except Violation as violation:
            message = f"{self.op.defn.short} of a constant: {violation.message}"
            help = f"`ptir opt -p fold` computes it; {violation.help}"
            raise Violation(NOT_TRANSLATABLE, message, help=help) from None
        return scalar if not shape else self("EXPAND", scalar, result_shape=shape, broadcast_dimensions=())

    # Nodes

    @property
    def name(self) -> str:
        """The name of the op's value in PTIR."""
        return self.op.results[0].name

    @property
    def own_name(self) -> str:
        """The name that is the op's to give: none inside a region, which may be put inline again."""
        return self.name if self.outer else ""

    def __call__(self, uop: str, *operands: Operand, **attrs: Any) -> Value:
        """A node before the last."""
        return self._node(self.to.fresh.between(self.name), uop, operands, attrs)

    def last(self, uop: str, *operands: Operand, **attrs: Any) -> Value:
        """The node that gives the result. One whose extents PTIR calls otherwise is reshaped to what PTIR calls them."""
        if self.outer and self.type.is_static:
            return self._node(self.name, uop, operands, attrs)
        return self.named(self.declared(self(uop, *operands, **attrs)))

    def _node(self, name: str, uop: str, operands: tuple[Operand, ...], attrs: dict[str, Any]) -> Value:
        self.to.builder.loc = self.op.loc
        return self.to.builder.op(uop, *operands, name=name, **attrs)

    def made(self) -> set[Value]:
        """The nodes built since the op was begun, those of its regions too."""
        return {op.results[0] for op in self.to.builder.block.body[self.start :]}

    def named(self, made: Value) -> Value:
        """`made` under the name of the result."""
        if self.outer:
            made.name = self.name
        return made

    def declared(self, x: Value) -> Value:
        """`x` with the extents that the op's type declares."""
        same = isinstance(x.type, TensorType) and x.type.shape == self.type.shape
        return x if same else self("RESHAPE", x, result_shape=self.type.shape)

    def cast(self, x: Value, dtype: DType) -> Value:
        """`x` in `dtype`, itself when it is."""
        return x if isinstance(x.type, TensorType) and x.type.dtype is dtype else self("CAST", x, to=dtype)

    def settled(self, x: Value) -> Value:
        """`x` in the dtype and the shape of the result, under its name."""
        return self.named(self.declared(self.cast(x, self.type.dtype)))
