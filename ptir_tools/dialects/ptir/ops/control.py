"""Control flow (contract: "Control flow (regions)"). A region sees only its parameters.

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


def packed_type(types: Sequence[Type]) -> Type:
    """One type for several results: the type itself when there is one, else a tuple."""
    return types[0] if len(types) == 1 else tuple_of(types)


def pack(values: Sequence[Data]) -> Data:
    """One value for several results, of the type `packed_type`."""
    return values[0] if len(values) == 1 else tuple(values)


def unpacked_types(t: Type, count: int) -> tuple[Type, ...]:
    """The types of `count` results, of which `t` is the packed type."""
    return t.elements if count != 1 and isinstance(t, TupleType) else (t,)


def result_count(op: Op) -> int:
    """The number of results of a control-flow op: those of its last region. A result may be a tuple itself.

    One result is the value of the op, whatever its type; several, or none, are the elements of its value, a tuple.
    """
    return len(op.regions[-1].results)


def result_types(op: Op) -> tuple[Type, ...]:
    """The types of the results of a control-flow op."""
    return unpacked_types(op.result.type, result_count(op))


def result_operands(v: Value, count: int) -> list[Operand]:
    """The `count` results that the value `v` of a control-flow op packs, as operands."""
    return [v] if count == 1 else [Element(v, i) for i in range(count)]


def check_parameters(block: Block, inputs: Sequence[Type], role: str) -> None:
    """Raise Violation("RegionSignatureMismatch") unless the parameters of `block` have the types `inputs`."""
    check_types([p.type for p in block.params], inputs, f"{role} ^{block.name}: parameter", block, params=True)


def check_types(found: Sequence[Type], expected: Sequence[Type], what: str, block: Block, params: bool = False) -> None:
    """Raise Violation("RegionSignatureMismatch") unless `found` is `expected`. It names the first type that differs. `found` are
    the result types of `block`, or with `params` the types of its parameters."""
    if len(found) != len(expected):
        message = f"{what}s: expected {len(expected)}, got {len(found)}"
        raise Violation(MISMATCH, message, at=f"^{block.name}", labels=[(block.loc, "declared here")])
    for i, (t, expected_t) in enumerate(zip(found, expected, strict=True)):
        if t is not expected_t:
            labels = [(block.loc, f"{'parameter' if params else 'result'} {i} is {t}")]
            raise Violation(MISMATCH, f"{what} {i} is {t}, expected {expected_t}", at=f"^{block.name}", labels=labels)


def check_flag(block: Block, role: str) -> None:
    """Raise Violation("RegionSignatureMismatch") unless the first result of `block` is an i1 scalar."""
    types = block.result_types
    good = types and types[0] is tensor(I1)
    require(good, MISMATCH, f"{role} returns an i1 scalar first, got {_text(types)}", at=f"^{block.name}")


def _text(types: Sequence[Type]) -> str:
    return f"({', '.join(map(str, types))})"


def cond_type(pred: Type, arguments: tuple[Type, ...], *, true_region: Block, false_region: Block) -> Type:
    """An i1 scalar; both regions take the other operands and return the same types."""
    require(isinstance(pred, TensorType), "OperandTypeMismatch", f"the predicate is {pred}, expected a tensor", at=operand(0))
    assert isinstance(pred, TensorType)
    want(pred.dtype, BOOLEANS, "the predicate")
    require(pred.rank == 0, "OperandRankMismatch", f"the predicate is a scalar, got {pred}", at=operand(0))
    check_parameters(true_region, arguments, "true_region")
    check_parameters(false_region, arguments, "false_region")
    check_types(false_region.result_types, true_region.result_types, f"false_region ^{false_region.name}: result", false_region)
    return packed_type(true_region.result_types)


@op("ptir.cond", infer=cond_type, generate=drawing.draw_cond, traits=PURE, inplace=InPlace("branch"), control=Branch(arguments=1))
def cond(pred: object, arguments: Many, *, true_region: Region, false_region: Region) -> Data:
    """The results of `true_region` on the other operands when `pred` is true, else those of `false_region`. Contract: Cond.

    One result is the op's value, several are a tuple.
    DTypeNotSupported, OperandRankMismatch: `pred` is not an i1 scalar. RegionSignatureMismatch: a region's parameters do not have
    the operands' types, or the regions return different types.
    """
    return pack((true_region if bool(pred) else false_region)(*arguments))


def while_type(carry: tuple[Type, ...], *, cond_region: Block, body_region: Block) -> Type:
    """`cond_region(carry) -> (i1, carry)`, `body_region(carry) -> carry`."""
    check_parameters(cond_region, carry, "cond_region")
    check_flag(cond_region, f"cond_region ^{cond_region.name}")
    check_types(cond_region.result_types[1:], carry, f"cond_region ^{cond_region.name}: carried value", cond_region)
    check_parameters(body_region, carry, "body_region")
    check_types(body_region.result_types, carry, f"body_region ^{body_region.name}: carried value", body_region)
    return packed_type(carry)


@op(
    "ptir.while",
    infer=while_type,
    generate=drawing.draw_while,
    traits=PURE,
    inplace=InPlace("while"),
    control=Loop(carries=lambda op: len(op.operands), test=0, body=1),
    fails=always,
)
def while_(carry: Many, *, cond_region: Region, body_region: Region, context: Context) -> object:
    """Run `cond_region`, then `body_region`, until the flag of the first is false. Contract: While.

    `cond_region` maps the carry to an i1 scalar and a carry. The body gets that carry, not the one given to `cond_region`. When
    the flag is false, that carry is the result. One carried value is the op's value, several are a tuple.
    RegionSignatureMismatch: a region's parameters or results do not have these types. More iterations than `--max-iterations`
    stop the run.
    """
    outer = context.indices
    try:
        for step in range(context.limits.iterations + 1):
            context.indices = (*outer, step)
            flag, *carry_out = cond_region(*carry)
            if not bool(flag):
                return pack(carry_out)
            carry = body_region(*carry_out)
    finally:
        context.indices = outer
    raise LimitExceeded(f"a while loop ran {context.limits.iterations} times", "--max-iterations")


def _scanned_slices(inputs: Sequence[Type], first_operand: int) -> tuple[Dim, list[TensorType]]:
    """The common leading extent of the scanned inputs, and the types of their slices. `first_operand` is the index of the first
    input."""
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


def scan_type(operands: tuple[Type, ...], *, carry_count: int, scan_output_count: int, body_region: Block) -> Type:
    """`body_region(carries, slices) -> (carries, outputs)`; the outputs are stacked along a new leading axis."""
    attribute(0 <= carry_count <= len(operands), f"carry_count {carry_count} is not in [0, {len(operands)}]", "carry_count")
    attribute(scan_output_count >= 0, f"scan_output_count {scan_output_count} is negative", "scan_output_count")
    carries, inputs = operands[:carry_count], operands[carry_count:]
    steps, slices = _scanned_slices(inputs, carry_count)
    check_parameters(body_region, (*carries, *slices), "body_region")
    results = body_region.result_types
    returned = len(results) == carry_count + scan_output_count
    require(returned, MISMATCH, f"body_region ^{body_region.name} returns {len(results)} values, "
            f"carry_count and scan_output_count are {carry_count} and {scan_output_count}")  # fmt: skip
    check_types(results[:carry_count], carries, f"body_region ^{body_region.name}: carried value", body_region)
    stacked: list[Type] = list(carries)
    for t in results[carry_count:]:
        require(isinstance(t, TensorType), MISMATCH, f"body_region ^{body_region.name}: an output is a tensor, got {t}")
        assert isinstance(t, TensorType)
        stacked.append(t.with_shape((steps, *t.shape)))
    return packed_type(stacked)


def has_steps(op: Op) -> bool:
    """Whether a scan certainly takes a step."""
    steps = operand_type(op.operands[-1])
    return isinstance(steps, TensorType) and isinstance(steps.shape[0], int) and steps.shape[0] > 0


@op(
    "ptir.scan",
    infer=scan_type,
    generate=drawing.draw_scan,
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
    types = unpacked_types(result, carry_count + scan_output_count)
    stacks = [_stack([row[i] for row in rows], t) for i, t in enumerate(types[carry_count:])]
    return pack([*carry, *stacks])


def _stack(rows: list[Array], t: Type) -> Array:
    assert isinstance(t, TensorType)
    return np.stack(rows) if rows else np.zeros(t.static_shape, arrays.numpy_dtype(t.dtype))
