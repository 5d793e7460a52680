"""Reads `mic@1` and the listing of `--emit-ir`: one statement a line, each line on its own.

The tool gives no types to instructions that Core IR could use, so types are inferred. An integer constant next to a value of
another dtype is a number of that dtype, as the tool computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ptir_tools.dialects.mind.ops  # noqa: F401  (declares the ops)
from ptir_tools import grammars
from ptir_tools.core.arrays import numpy_dtype, to_literal
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32, F64, SI64, DType
from ptir_tools.core.ir import Attribute, Function, Literal, Value, create
from ptir_tools.core.lazy import np, regex
from ptir_tools.core.limits import integer
from ptir_tools.core.source import Loc, Source, pack
from ptir_tools.core.spelling import did_you_mean, near_names
from ptir_tools.core.types import POISON, TensorType, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.types import DTYPES
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Token

# Instructions of the tool that Core v1 does not have. Some have a form of their own, which is not parsed.
ABSENT = (
    "mod", "lt", "le", "gt", "ge", "eq", "ne", "bitand", "bitor", "bitxor", "shl", "shr", "relu_grad",
    "conv2d.grad.input", "conv2d.grad.filter", "conv2d_grad_input", "conv2d_grad_filter", "sparse.attr", "const.array",
    "array.load", "array.store", "if", "vec.load", "vec.load.i32", "vec.store", "vec.fma", "vec.muladd.q16", "vec.reduce.add",
    "vec.reduce.add.i64",
)  # fmt: skip
OUTPUTS_LAST = "outputs_last"  # attribute of a function: the outputs are at the end, not each after its instruction
_START = regex(r"\s*(?:(?:N|%)(\d+)\s*=?\s*)?([a-z][\w.]*)?")
SCALARS: Mapping[DType, str] = {SI64: "ConstI64", F32: "ConstF32", F64: "ConstF64"}
_NAMES = {"ID": "a value", "TID": "a type", "SID": "a symbol", "WORD": "a word", "NUMBER": "a number", "STRING": "a string"}


class Reader:
    """One text on its way to a program. `form` is the format: `mic`, or the listing."""

    def __init__(self, source: Source, diagnostics: Diagnostics, form: str, current: bool) -> None:
        self.source, self.diagnostics, self.form, self.current = source, diagnostics, form, current
        self.function = Function("main", loc=pack(0, 0))
        self.values: dict[str, Value] = {}
        self.types: dict[str, list[str]] = {}  # dtype and extents, some of them symbols
        self.integers: dict[Value, float] = {}  # integer constants, which have the dtype of what they meet
        self.loc: Loc = 0
        self.outputs_last = True  # no instruction is after an output
        self.known_version = form != "mic"

    def read(self) -> Program:
        """The program of the text. Errors are reported line by line; what an erroneous line defines is POISON."""
        parser, at, mark = grammars.parser("mic", Nodes()), 0, "#" if self.form == "mic" else "//"
        for line in self.source.text.split("\n"):
            code = line if line.lstrip().startswith("S") else line.partition(mark)[0]  # a symbol may have the mark in its name
            if code.strip():
                self.loc = pack(at + len(code) - len(code.lstrip()), at + len(code.rstrip()))
                self.line(parser, code, at)
                if not self.known_version:
                    break
            at += len(line) + 1
        end = pack(len(self.source.text), len(self.source.text))
        if not self.known_version:
            if not self.diagnostics.errors:
                self.diagnostics.error("E1007", "the text does not begin with `mic@1`", self.loc)
        elif not self.function.results:
            self.diagnostics.error("E4003", "the program has no outputs", end)
        self.function.attrs = {
            "input_names": [p.name for p in self.function.params],
            "input_locs": {},
            OUTPUTS_LAST: self.outputs_last,
        }
        return Program(DIALECT, [self.function], entry="main", source=self.source, format=self.form)

    def line(self, parser: Parser, code: str, at: int) -> None:
        """The statement of one line, which begins at `at`."""
        start = _START.match(code)
        assert start is not None
        name, word = start.groups()
        if word in ABSENT:
            place = pack(at + start.start(2), at + start.end(2))
            self.diagnostics.error("E6003", f"`{word}` is an operation of MIND's tool that Core v1 does not have", place)
            if name:
                self.values.setdefault(name, Value(POISON, name))
            return
        try:
            root: Node = parser.parse(code, "line")
        except Refused:
            fault = grammars.refused("mic", code, "line")
            grammars.report("mic", fault, self.diagnostics, "E1007", _NAMES, offset=at, end=at + len(code))
            return
        for node in (x for x in root.children if isinstance(x, Node)):
            try:
                _STATEMENTS[node.data](self, node)
            except Violation as violation:
                self.diagnostics.violation(violation, self.loc)
                if node.data == "node":
                    name = _name(node.token("ID"))
                    self.values.setdefault(name, Value(POISON, name))

    def version(self, node: Node) -> None:
        """`mic@1`. Raises Violation for another version."""
        self.known_version = str(node.token()) == "mic@1"
        require(node.token() == "mic@1", "E1007", f"`{node.token()}` cannot be read, `mic@1` can", at=str(node.token()))

    def symbol(self, node: Node) -> None:
        """`S0 "name"`: no instruction uses it."""

    def table(self, node: Node) -> None:
        """`T0 [f32;2,3]`. Raises Violation for an unknown dtype."""
        word, *extents = node.tokens("type")
        _dtype(word)
        self.types[str(node.token("TID"))] = [str(word), *map(str, extents)]

    def output(self, node: Node) -> None:
        """`O N6`. Raises Violation."""
        self.function.results = [*self.function.results, self.value(node.token("ID"))]
        self.function.return_loc = self.loc

    def value(self, token: Token) -> Value:
        """The value that a token names. Raises Violation."""
        found = self.values.get(_name(token))
        if found is None:
            raise Violation("E4001", f"`{token}` is not defined", at=str(token))
        return found

    def node(self, node: Node) -> None:
        """`N2 matmul N0 N1 T2`. Raises Violation."""
        self.outputs_last &= not self.function.results
        own, *given = (t for t in node.tokens() if t.type == "ID")
        kind = str(node.token("WORD"))
        require(_name(own) not in self.values, "E4002", f"`{own}` is defined twice", at=str(own))
        make = _MAKERS.get(kind)
        if make is None:
            raise Violation("E6003", f"unknown operation `{kind}`", help=did_you_mean(near_names(kind, list(_MAKERS))), at=kind)
        make(self, node, _name(own), [self.value(t) for t in given])

    def add(self, name: str, opcode: str, operands: Sequence[Value] = (), **attrs: Attribute) -> None:
        """An instruction that defines `name`. Raises Violation."""
        if any(x.type is POISON for x in operands):
            self.values[name] = Value(POISON, name)
            return
        op = create(OPS[f"mind.{opcode}"], operands, attrs, names=[name], loc=self.loc)
        self.function.body.append(op)
        self.values[name] = op.result

    # Instructions

    def integer_constant(self, node: Node, name: str, operands: list[Value]) -> None:
        """`const.i64 20`. Raises Violation."""
        number = _number(node)
        self.add(name, "ConstI64", value=_scalar(number, SI64))
        self.integers[self.values[name]] = number

    def float_constant(self, node: Node, name: str, operands: list[Value]) -> None:
        """`const.f64 2.5`. Raises Violation."""
        self.add(name, "ConstF64", value=_scalar(_number(node), F64))

    def tensor_constant(self, node: Node, name: str, operands: list[Value]) -> None:
        """`const.tensor fill=2 T0`, `const.tensor F32 ["2", "3"] fill=Some(2.0)`: an input where there is no fill. Raises
        Violation."""
        t = self.tensor_type(node)
        keyed = _keyed(node)
        fill = keyed.get("fill")
        found = None if fill is None or str(fill[0]) == "None" else fill[-1]
        if found is None:
            value = Value(t, name)
            self.function.params.append(value)
            self.values[name] = value
            return
        number = float(str(found).replace("NaN", "nan"))
        if not t.shape and t.dtype.is_float:
            self.add(name, SCALARS[t.dtype], value=_scalar(number, t.dtype))
            return
        fits = t.dtype.is_float or (number.is_integer() and -(2 ** (t.dtype.bits - 1)) <= number < 2 ** (t.dtype.bits - 1))
        require(fits, "E4005", f"`{found}` is no {t.dtype.name}", at=str(found))
        self.add(name, "ConstTensor", value=to_literal(np.full(t.static_shape, number, numpy_dtype(t.dtype)), t))

    def tensor_type(self, node: Node) -> TensorType:
        """The type that an instruction names or spells. Raises Violation."""
        named = next((t for t in node.tokens() if t.type == "TID"), None)
        if named is not None:
            require(str(named) in self.types, "E2001", f"`{named}` is not a type of the table", at=str(named))
            word, *extents = self.types[str(named)]
        else:
            words = [t for t in node.tokens() if t.type == "WORD"][1:]
            require(bool(words), "E2001", "the type is missing")
            word, extents = str(words[0]), [str(t).strip('"') for part in node.parts("list") for t in _inside(part)]
        dtype = _dtype(word)
        open_ = next((e for e in extents if not e.isdecimal()), None)
        require(
            open_ is None, "E4004", f"the extent `{open_}` is a symbol", help="Core IR has extents that are numbers", at=open_
        )
        return tensor(dtype, [integer(e) for e in extents])

    def binary(self, node: Node, name: str, operands: list[Value]) -> None:
        """`add N0 N1`. Raises Violation."""
        kind = str(node.token("WORD"))
        require(len(operands) == 2, "E2007", f"`{kind}` takes 2 operands, got {len(operands)}", at=kind)
        opcode = kind.capitalize()
        require(
            self.current or OPS[f"mind.{opcode}"].own is None,
            "E6003",
            f"`{kind}` is not an operation of Core v1",
            help="with --profile current it is",
            at=kind,
        )
        self.add(name, opcode, self.alike(*operands))

    def alike(self, a: Value, b: Value) -> list[Value]:
        """Two operands, an integer constant with the dtype of the other one."""
        pairs = ((a, b), (b, a))
        return [self.as_dtype(x, y.type.dtype) if isinstance(y.type, TensorType) else x for x, y in pairs]

    def as_dtype(self, x: Value, dtype: DType) -> Value:
        """An integer constant as one of another dtype; anything else as it is. A constant that nothing else uses is replaced."""
        number = self.integers.get(x)
        if number is None or x.type is tensor(dtype) or x.op is None:
            return x
        opcode = SCALARS.get(dtype, "ConstTensor")
        made = create(OPS[f"mind.{opcode}"], (), {"value": _scalar(number, dtype)}, names=[x.name], loc=x.op.loc)
        self.integers[made.result] = number
        body = self.function.body
        if any(x in op.operands for op in body) or x in self.function.results:
            made.result.name = f"{x.name}_{dtype.name}"
            body.insert(body.index(x.op) + 1, made)
        else:
            body[body.index(x.op)] = made
            self.values[x.name] = made.result
        return made.result

    def reduction(self, node: Node, name: str, operands: list[Value]) -> None:
        """`sum N5 [0] kd=1`, `sum %5 axes=[0] keepdims=true`. Raises Violation."""
        keep = _word(node, "kd", "keepdims") in ("1", "true")
        axes = tuple(_numbers(node, "axes"))
        self.add(name, str(node.token("WORD")).capitalize(), operands, axes=axes, keepdims=keep)

    def convolution(self, node: Node, name: str, operands: list[Value]) -> None:
        """`conv2d N0 N1 s=[1,1] p=same`. Raises Violation."""
        keyed = _keyed(node)
        strides = tuple(integer(str(t)) for t in (keyed.get("s") or keyed.get("strides") or []))
        padding = _word(node, "p", "padding").capitalize()
        self.add(name, "Conv2d", operands, strides=strides, padding=padding)

    def index(self, node: Node, name: str, operands: list[Value]) -> None:
        """`index N0 [0:1,1:2]`: axes and indices. Core IR indexes all axes at once; some are a Slice and a Squeeze. Raises
        Violation."""
        pairs = {p[0]: p[1] or 0 for p in _fields(node, ("axis", "index"))}
        t = operands[0].type
        extents = t.static_shape if isinstance(t, TensorType) else ()
        if len(pairs) >= len(extents) or not all(axis in range(len(extents)) for axis in pairs):
            require(
                sorted(map(str, pairs)) == sorted(map(str, range(len(pairs)))),
                "E4013",
                "an axis is there twice, or is none",
                at="index",
            )
            self.add(name, "Index", operands, indices=tuple(pairs[axis] for axis in range(len(pairs))))
            return
        starts = tuple(pairs.get(axis, 0) for axis in range(len(extents)))
        ends = tuple(pairs[axis] + 1 if axis in pairs else n for axis, n in enumerate(extents))
        self.add(f"{name}_part", "Slice", operands, starts=starts, ends=ends, steps=(1,) * len(extents))
        self.add(name, "Squeeze", [self.values[f"{name}_part"]], axes=tuple(sorted(a for a in pairs if a is not None)))

    def slice(self, node: Node, name: str, operands: list[Value]) -> None:
        """`slice N0 0:2:1,0:3:1`. An end that is left out is the extent; an axis that is left out is whole. Raises Violation."""
        spans = _fields(node, ("start", "end", "stride", "axis"))
        t = operands[0].type
        extents = t.static_shape if isinstance(t, TensorType) else ()
        by_axis = {(s[3] if len(s) > 3 and s[3] is not None else i): s for i, s in enumerate(spans)}
        require(len(by_axis) == len(spans), "E4013", "an axis is there twice", at="slice")
        rank = max([len(extents), *(axis + 1 for axis in by_axis)])
        whole = [by_axis.get(axis, [0, None, 1]) for axis in range(rank)]
        ends = tuple((extents[i] if i < len(extents) else 0) if s[1] is None else s[1] for i, s in enumerate(whole))
        steps = tuple(1 if len(s) < 3 or s[2] is None else s[2] for s in whole)
        self.add(name, "Slice", operands, starts=tuple(s[0] or 0 for s in whole), ends=ends, steps=steps)

    def gather(self, node: Node, name: str, operands: list[Value]) -> None:
        """`gather N0 N1 ax=0`: along the first axis. Raises Violation."""
        axis = _word(node, "ax", "axis") or "0"
        require(axis == "0", "E4013", f"Core IR gathers along axis 0, not {axis}", at=axis)
        named = [self.value(t) for k in node.parts("keyed") for t in k.tokens() if t.type == "ID"]
        self.add(name, "Gather", [*operands, *named])


Maker = Callable[[Reader, Node, str, list[Value]], None]


def _plain(opcode: str, attribute: str = "", key: str = "") -> Maker:
    """An instruction whose only attribute, if any, is a list of numbers, or the number after `key`."""

    def make(r: Reader, node: Node, name: str, operands: list[Value]) -> None:
        r.add(name, opcode, operands, **({attribute: tuple(_numbers(node, key))} if attribute else {}))

    return make


def _name(token: Token) -> str:
    return str(token)[1:]


def _dtype(word: str) -> DType:
    """The dtype of a word. Raises Violation."""
    found = DTYPES.get(str(word).lower())
    if found is None:
        raise Violation("E2005", f"dtype `{word}`; MIND has {', '.join(DTYPES)}", at=str(word))
    return found


def _number(node: Node) -> float:
    """The number of a constant. Raises Violation."""
    found = next((t for t in node.tokens() if t.type == "NUMBER"), None)
    if found is None:
        raise Violation("E4013", f"`{node.token('WORD')}` needs a number", at=str(node.token("WORD")))
    return integer(str(found)) if str(found).lstrip("-").isdecimal() else float(str(found).replace("NaN", "nan"))


def _scalar(number: float, dtype: DType) -> Literal:
    """A literal of rank 0. Raises Violation for an integer that does not fit."""
    fits = dtype.is_float or -(2 ** (dtype.bits - 1)) <= number < 2 ** (dtype.bits - 1)
    require(fits, "E4005", f"{number} is no {dtype.name}")
    return to_literal(np.asarray(number, numpy_dtype(dtype)), tensor(dtype))


def _keyed(node: Node) -> dict[str, list[Token]]:
    """What follows each `key=`: the tokens in it."""
    return {str(k.token("WORD")): _inside(k)[1:] for k in node.parts("keyed")}


def _word(node: Node, *keys: str) -> str:
    """What follows the one of `keys` that is there; nothing where none is."""
    keyed = _keyed(node)
    return next((str(keyed[key][0]) for key in keys if keyed.get(key)), "")


def _inside(node: Node) -> list[Token]:
    """The tokens of a node and of its parts."""
    found: list[Token] = []
    for x in node.children:
        found += _inside(x) if isinstance(x, Node) else [x]
    return found


def _numbers(node: Node, key: str = "") -> list[int]:
    """The numbers of the list of an instruction, or of the one after `key=`. Raises Violation for what is no integer."""
    keyed = _keyed(node)
    tokens = keyed[key] if key in keyed else [t for part in node.parts("list") for t in _inside(part)]
    texts = [str(t).strip('"') for t in tokens]
    bad = next((t for t in texts if not t.lstrip("-").isdecimal()), None)
    require(bad is None, "E4013", f"`{bad}` is no integer", at=bad)
    return [integer(t) for t in texts]


def _fields(node: Node, names: tuple[str, ...]) -> list[list[int | None]]:
    """The entries `1:2`, or `Spec { start: 0, end: Some(2) }`, of an index or slice: their numbers, None for one that is left
    out."""
    found: list[list[int | None]] = []
    for d in [
        *(t for t in node.tokens() if t.type == "DIMS"),
        *(t for x in node.parts("list") for t in x.tokens() if t.type == "DIMS"),
    ]:
        found.append([integer(t) if t else None for t in str(d).split(":")])
    for spec in (x for part in node.parts("list") for x in part.parts("spec")):
        fields = {str(f.token("WORD")): _inside(f)[-1] for f in spec.parts("field")}
        found.append([integer(str(fields[n])) if n in fields and str(fields[n]) != "None" else None for n in names])
    return found


_STATEMENTS: Mapping[str, Callable[[Reader, Node], None]] = {
    "header": Reader.version,
    "symbol": Reader.symbol,
    "table": Reader.table,
    "node": Reader.node,
    "output": Reader.output,
}
_MAKERS: Mapping[str, Maker] = {
    "const.i64": Reader.integer_constant,
    "const.f64": Reader.float_constant,
    "const.tensor": Reader.tensor_constant,
    "add": Reader.binary,
    "sub": Reader.binary,
    "mul": Reader.binary,
    "div": Reader.binary,
    "sum": Reader.reduction,
    "mean": Reader.reduction,
    "relu": _plain("Relu"),
    "reshape": _plain("Reshape", "new_shape"),
    "expand": _plain("ExpandDims", "axes"),
    "expand_dims": _plain("ExpandDims", "axes", "axis"),
    "squeeze": _plain("Squeeze", "axes", "axes"),
    "transpose": _plain("Transpose", "permutation", "perm"),
    "dot": _plain("Dot"),
    "matmul": _plain("MatMul"),
    "conv2d": Reader.convolution,
    "index": Reader.index,
    "slice": Reader.slice,
    "gather": Reader.gather,
}
