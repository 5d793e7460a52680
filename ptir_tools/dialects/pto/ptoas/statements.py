"""Statements: scalars, calls, and which function reads what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.ir import Value
from ptir_tools.core.spelling import did_you_mean, near_names
from ptir_tools.core.violations import OP_NAME, Violation, require
from ptir_tools.dialects.pto.ptoas import control, fifos, memory, table, tiles
from ptir_tools.dialects.pto.ptoas.flow import defined, op_name, values
from ptir_tools.dialects.pto.ptoas.reader import Reader
from ptir_tools.dialects.pto.ptoas.types import parse
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.forms import short_name
from ptir_tools.dialects.pto.types import ScalarType, scalar
from ptir_tools.grammars.parser import Node

Statement = Callable[[Reader, Node], None]


def statement(r: Reader, node: Node) -> None:
    """What a statement makes. Raises Violation, and Lost."""
    _BLOCKS.get(node.data, _op)(r, node)


def _op(r: Reader, node: Node) -> None:
    """The op of a statement. Raises Violation."""
    r.loc = node.loc
    name = op_name(node)
    if (special := _SPECIAL.get(name)) is not None:
        special(r, node)
    elif name in table.ORDER:
        unordered(r, node)
    elif name in table.EVENT_ARRAYS:
        r.lost.update(x[1:] for x in defined(node))
    elif name in table.CORES:
        core_number(r, node, table.CORES[name])
    elif name in table.REFUSED:
        raise Violation("UnknownOp", f"`{name}` has no op in PTO IR: {table.REFUSED[name]}", at=OP_NAME)
    elif (d := table.tile_op(name)) is not None:
        tiles.tile_op(r, node, name, d.name)
    elif name.startswith(("arith.", "pto.")) and (f"pto.{short_name(name)}") in OPS:
        arithmetic(r, node, f"pto.{short_name(name)}")
    else:
        known = [f"pto.t{x[9:]}" for x in OPS if x.startswith("pto.tile.")]
        raise Violation(
            "UnknownOp", f"`{name}` is not an op that can be read", help=did_you_mean(near_names(name, known)), at=OP_NAME
        )


def unordered(r: Reader, node: Node) -> None:
    """A flag or barrier, which is left out: ops are read as synchronous. Reported once for a function. The parameter that says
    where the flags between cores are is left out, too."""
    if op_name(node) == "pto.set_ffts":
        r.made.params[:] = [p for p in r.made.params if p.name != str(values(node)[0])[1:]]
    if not r.warned:
        message = "flags and barriers are not checked: every op is read as if it were complete before the next one begins"
        r.diagnostics.warning("Unproved", message, node.loc, help="`ptir opt -p pto-insert-events` adds events of its own")
    r.warned = True


def core_number(r: Reader, node: Node, name: str) -> None:
    """The number of the core that runs: a parameter; of a vector core with a pipe, `pto.subblock`; where the module says on how
    many cores it is launched, `pto.block_idx`."""
    known = {"subblock_idx": r.piped and "pto.subblock", "block_idx": r.launched and "pto.block_idx"}.get(name)
    if known:
        r.bind(defined(node)[0], r.emit(known, [], {"to": scalar(SI64)}, name).results[0])
        return
    found = next((p for p in r.made.params if p.name == name), None)
    if found is None:
        found = Value(scalar(SI64), name)
        r.made.params.append(found)
    r.bind(defined(node)[0], found)


def arithmetic(r: Reader, node: Node, name: str) -> None:
    """A scalar op. Raises Violation."""
    d = OPS[name]
    attrs: dict[str, object] = {}
    if "predicate" in d.attr_index:
        attrs["predicate"] = str(node.token("WORD"))
    sides = node.part("signature")
    types = [t for x in (sides.parts("types") if sides else ()) for t in x.tokens()]
    if "to" in d.attr_index:
        attrs["to"] = r.type(types[-1])
    operands = [r.scalar(t) for t in values(node)]
    if operands and operands[0].type is attrs.get("to"):
        r.bind(defined(node)[0], operands[0])
        return
    r.bind(defined(node)[0], r.emit(name, operands, attrs, defined(node)[0][1:]).results[0])


def constant(r: Reader, node: Node) -> None:
    """`arith.constant 1.0 : f32`, `arith.constant true`."""
    require(
        any(t.type == "NUMBER" for t in node.tokens()), "UnknownOp", "a constant of several numbers cannot be read", at=OP_NAME
    )
    number = node.token("NUMBER")
    listed = node.part("signature")
    t = r.type(listed.parts("types")[0].token()) if listed else parse("i1")
    require(isinstance(t, ScalarType), "TypeMismatch", "a constant is a scalar here")
    assert isinstance(t, ScalarType)
    name = defined(node)[0]
    r.bind(name, r.emit("pto.constant", [], {"value": literals.scalar(number, t)}, name[1:]).results[0])


def call(r: Reader, node: Node) -> None:
    """A call of a function on scalars and pointers. Raises Violation."""
    callee = literals.unquoted(node.token("SYMBOL")[1:])
    sides = node.part("signature")
    lists = [x.tokens() for x in sides.parts("types")] if sides else []
    types = [r.type(t) for t in (lists[-1] if len(lists) > 1 else [])]
    operands = [r.scalar(t) for t in values(node)]
    made = r.emit("pto.func.call", [operands], {"callee": callee, "to": tuple(types)}, "")
    for name, value in zip(defined(node), made.results, strict=True):
        value.name = name[1:]
        r.bind(name, value)


_SPECIAL: Mapping[str, Statement] = {
    "arith.constant": constant,
    "return": control.result,
    "func.return": control.result,
    "call": call,
    "func.call": call,
    "pto.make_tensor_view": memory.tensor_view,
    "pto.partition_view": memory.partition,
    "pto.subview": memory.partition,
    "pto.alloc_tile": tiles.alloc,
    "memref.alloc": tiles.alloc,
    "memref.dealloc": lambda r, n: None,
    "pto.set_validshape": tiles.set_valid,
    "pto.tassign": tiles.renamed,
    "pto.treshape": tiles.renamed,
    "pto.bind_tile": tiles.renamed,
    "pto.tmov": tiles.move,
    "pto.tsels": tiles.choose,
    "pto.tdequant": tiles.dequantize,
    "pto.tpack": tiles.pack,
    "pto.tload": memory.load,
    "pto.tstore": memory.store,
    "pto.tprefetch": memory.hint,
    "pto.addptr": memory.shifted,
    "pto.reserve_buffer": fifos.reserve,
    "pto.import_reserved_buffer": fifos.reserve,
    **dict.fromkeys(map("pto.{}_initialize_pipe".format, ("aic", "aiv")), fifos.initialize),
    **dict.fromkeys(map("pto.initialize_{}_pipe".format, ("l2l", "l2g2l")), fifos.initialize),
    **dict.fromkeys(map("pto.tpush{}".format, ("", "_to_aic", "_to_aiv")), fifos.push),
    **dict.fromkeys(map("pto.tpop{}".format, ("", "_from_aic", "_from_aiv")), fifos.pop),
    **dict.fromkeys(map("pto.tfree{}".format, ("", "_from_aic", "_from_aiv")), fifos.free),
    "pto.declare_tile": fifos.declare,
    "pto.tfillpad": tiles.pad,
    "pto.tfillpad_inplace": tiles.pad,
    "pto.tfillpad_expand": tiles.pad,
}
_BLOCKS: Mapping[str, Statement] = {
    "loop": control.loop,
    "branch": control.branch,
    "repeat": control.repeat,
    "section": control.section,
}
