"""Control flow (contract: "Control flow (regions)"). Regions see nothing but their parameters.

A loop's iteration number is appended to `Context.indices`, from which random ops draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import always, op
from ptir_tools.core.dtypes import I1
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import PURE, Branch, Element, InPlace, Loop, Op, Operand, Value, operand_type
from ptir_tools.core.ir import Region as Block
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, TensorType, TupleType, Type, tensor, tuple_of
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.ptir.ops.kinds import AnyResult as Result
from ptir_tools.dialects.ptir.ops.kinds import Context, Region
from ptir_tools.dialects.ptir.ops.typerules import BOOLEANS, agree, attribute, want

if TYPE_CHECKING:
    from ptir_tools.core.declare import Many

drawing = Later("ptir_tools.dialects.ptir.drawing")

MISMATCH = "RegionSignatureMismatch"


def packed(types: Sequence[Type]) -> Type:
    """One type for several results: the type itself when there is one, else a tuple."""
    return types[0] if len(types) == 1 else tuple_of(types)


def pack(values: Sequence[Data]) -> Data:
    """One value for several results, as `packed` types it."""
    return values[0] if len(values) == 1 else tuple(values)


def unpacked(t: Type, count: int) -> tuple[Type, ...]:
    """The types of `count` results that `packed` made one."""
    return t.elements if count != 1 and isinstance(t, TupleType) else (t,)


def result_count(op: Op) -> int:
    """How many results a control-flow op has: those of its last region, which may be tuples themselves.

    One result is the value of the op, whatever its type; several, or none, are the elements of its value, a tuple.
    """
    return len(op.regions[-1].results)


def result_types(op: Op) -> tuple[Type, ...]:
    """The types of the results of a control-flow op."""
    return unpacked(op.result.type, result_count(op))


def result_operands(v: Value, count: int) -> list[Operand]:
    """The `count` results that the value `v` of a control-flow op packs, as operands."""
    return [v] if count == 1 else [Element(v, i) for i in range(count)]


def signature(block: Block, inputs: Sequence[Type], role: str) -> None:
    """Raise Violation("RegionSignatureMismatch") unless the parameters of `block` have the types `inputs`."""
    match([p.type for p in block.params], inputs, f"{role} ^{block.name}: parameter", block, params=True)


def match(found: Sequence[Type], wanted: Sequence[Type], what: str, block: Block, params: bool = False) -> None:
    """Raise Violation("RegionSignatureMismatch") unless the types that `block` declares are the wanted ones, naming the first
    that is not. They are its results, or with `params` its parameters."""
    if len(found) != len(wanted):
        message = f"{what}s: {len(wanted)} are wanted, there are {len(found)}"
        raise Violation(MISMATCH, message, at=f"^{block.name}", labels=[(block.loc, "declared here")])
    for i, (have, want_) in enumerate(zip(found, wanted, strict=True)):
        if have is not want_:
            labels = [(block.loc, f"{'parameter' if params else 'result'} {i} is {have}")]
            raise Violation(MISMATCH, f"{what} {i} is {have}, wanted is {want_}", at=f"^{block.name}", labels=labels)


def one_flag(block: Block, role: str) -> None:
    """Raise Violation("RegionSignatureMismatch") unless the first result of `block` is an i1 scalar."""
    types = block.result_types
    good = types and types[0] is tensor(I1)
    require(good, MISMATCH, f"{role} returns an i1 scalar first, got {_text(types)}", at=f"^{block.name}")


def _text(types: Sequence[Type]) -> str:
    return f"({', '.join(map(str, types))})"


def branched(pred: Type, arguments: tuple[Type, ...], *, true_region: Block, false_region: Block) -> Type:
    """An i1 scalar; both regions take the other operands and return the same types."""
    require(isinstance(pred, TensorType), "OperandTypeMismatch", f"the predicate is {pred}; a tensor is wanted", at=operand(0))
    assert isinstance(pred, TensorType)
    want(pred.dtype, BOOLEANS, "the predicate")
    require(pred.rank == 0, "OperandRankMismatch", f"the predicate is a scalar, got {pred}", at=operand(0))
    signature(true_region, arguments, "true_region")
    signature(false_region, arguments, "false_region")
    match(false_region.result_types, true_region.result_types, f"false_region ^{false_region.name}: result", false_region)
    return packed(true_region.result_types)


@op("ptir.cond", infer=branched, generate=drawing.branched, traits=PURE, inplace=InPlace("branch"), control=Branch(arguments=1))
def cond(pred: object, arguments: Many, *, true_region: Region, false_region: Region) -> Data:
    """The results of `true_region` on the other operands when `pred` holds, else those of `false_region`. Contract: Cond.

    One result is the op's value, several are a tuple.
    DTypeNotSupported, OperandRankMismatch: `pred` is not an i1 scalar. RegionSignatureMismatch: a region's parameters are
    not of the operands' types, or the regions return different types.
    """
    return pack((true_region if bool(pred) else false_region)(*arguments))


def looped(carry: tuple[Type, ...], *, cond_region: Block, body_region: Block) -> Type:
    """`cond_region(carry) -> (i1, carry)`, `body_region(carry) -> carry`."""
    signature(cond_region, carry, "cond_region")
    one_flag(cond_region, f"cond_region ^{cond_region.name}")
    match(cond_region.result_types[1:], carry, f"cond_region ^{cond_region.name}: carried value", cond_region)
    signature(body_region, carry, "body_region")
    match(body_region.result_types, carry, f"body_region ^{body_region.name}: carried value", body_region)
    return packed(carry)


@op(
    "ptir.while",
    infer=looped,
    generate=drawing.looped,
    traits=PURE,
    inplace=InPlace("while"),
    control=Loop(carries=lambda op: len(op.operands), test=0, body=1),
    fails=always,
)
def while_(carry: Many, *, cond_region: Region, body_region: Region, context: Context) -> object:
    """Run `cond_region`, then `body_region`, until the first says no. Contract: While.

    `cond_region` maps the carry to an i1 scalar and a carry. That carry, not the one given to it, is what the body gets
    and, when the flag is false, the result. One carried value is the op's value, several are a tuple.
    RegionSignatureMismatch: a region's parameters or results are not of these types. More iterations than
    `--max-iterations` stop the run.
    """
    outer = context.indices
    try:
        for step in range(context.limits.iterations + 1):
            context.indices = (*outer, step)
            flag, *kept = cond_region(*carry)
            if not bool(flag):
                return pack(kept)
            carry = body_region(*kept)
    finally:
        context.indices = outer
    raise LimitExceeded(f"a while loop ran {context.limits.iterations} times", "--max-iterations")


def _steps(inputs: Sequence[Type], first_operand: int) -> tuple[Dim, list[TensorType]]:
    """The common leading extent of the scanned inputs, and the types of their slices. They are the operands from a number on."""
    slices = []
    require(inputs, "OperandCountMismatch", "scan needs at least one input in addition to its carries")
    for i, t in enumerate(inputs, first_operand):
        require(isinstance(t, TensorType), "OperandTypeMismatch", f"a scanned input is a tensor, got {t}", at=operand(i))
        assert isinstance(t, TensorType)
        require(t.rank >= 1, "OperandRankMismatch", f"a scanned input has a leading time axis, got {t}", at=operand(i))
        slices.append(t.with_shape(t.shape[1:]))
    first = inputs[0]
    assert isinstance(first, TensorType)
    for i, t in enumerate(inputs[1:], first_operand + 1):
        assert isinstance(t, TensorType)
        message = f"scanned inputs {first} and {t} differ in their time axis"
        agree(first.shape[0], t.shape[0], "OperandShapeMismatch", message, operand(i))
    return first.shape[0], slices


def scanned(operands: tuple[Type, ...], *, carry_count: int, scan_output_count: int, body_region: Block) -> Type:
    """`body_region(carries, slices) -> (carries, outputs)`; the outputs are stacked along a new leading axis."""
    attribute(0 <= carry_count <= len(operands), f"carry_count {carry_count} is not in [0, {len(operands)}]", "carry_count")
    attribute(scan_output_count >= 0, f"scan_output_count {scan_output_count} is negative", "scan_output_count")
    carries, inputs = operands[:carry_count], operands[carry_count:]
    steps, slices = _steps(inputs, carry_count)
    signature(body_region, (*carries, *slices), "body_region")
    results = body_region.result_types
    returned = len(results) == carry_count + scan_output_count
    require(returned, MISMATCH, f"body_region ^{body_region.name} returns {len(results)} values, "
            f"carry_count and scan_output_count are {carry_count} and {scan_output_count}")  # fmt: skip
    match(results[:carry_count], carries, f"body_region ^{body_region.name}: carried value", body_region)
    stacked: list[Type] = list(carries)
    for t in results[carry_count:]:
        require(isinstance(t, TensorType), MISMATCH, f"body_region ^{body_region.name}: an output is a tensor, got {t}")
        assert isinstance(t, TensorType)
        stacked.append(t.with_shape((steps, *t.shape)))
    return packed(stacked)


def has_steps(op: Op) -> bool:
    """Whether a scan takes at least one step, for sure."""
    steps = operand_type(op.operands[-1])
    return isinstance(steps, TensorType) and isinstance(steps.shape[0], int) and steps.shape[0] > 0


@op(
    "ptir.scan",
    infer=scanned,
    generate=drawing.scanned,
    traits=PURE,
    inplace=InPlace("scan"),
    control=Loop(carries=lambda op: int(op.attr("carry_count")), runs=has_steps),
)
def scan(
    operands: Many, *, body_region: Region, carry_count: int, scan_output_count: int, context: Context, result: Result
) -> Data:
    """Run `body_region` over the leading axis of the inputs, carrying values from step to step. Contract: Scan.

    The operands are `carry_count` carries, then inputs of one leading extent. The body takes the carries and one slice of
    each input and returns the carries and `scan_output_count` outputs, which are stacked. The result is a tuple of the last
    carries and the stacks (the value itself when there is one). Zero steps give the carries and empty stacks.
    RegionSignatureMismatch: the body's parameters or results are not of these types. OperandCountMismatch,
    OperandRankMismatch, OperandShapeMismatch, DynamicDimensionMismatch: no input, one without a leading axis, or different
    leading extents. InvalidAttributeValue: a count is out of range.
    """
    carry, inputs = operands[:carry_count], operands[carry_count:]
    rows: list[tuple[Data, ...]] = []
    outer = context.indices
    try:
        for step in range(inputs[0].shape[0]):
            context.indices = (*outer, step)
            returned = body_region(*carry, *(x[step, ...] for x in inputs))
            carry = returned[:carry_count]
            rows.append(returned[carry_count:])
    finally:
        context.indices = outer
    types = unpacked(result, carry_count + scan_output_count)
    stacks = [_stack([row[i] for row in rows], t) for i, t in enumerate(types[carry_count:])]
    return pack([*carry, *stacks])


def _stack(rows: list[Array], t: Type) -> Array:
    assert isinstance(t, TensorType)
    return np.stack(rows) if rows else np.zeros(t.static_shape, arrays.numpy_dtype(t.dtype))
