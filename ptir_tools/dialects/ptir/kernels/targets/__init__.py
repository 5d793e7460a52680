"""The known targets of custom calls. They are gpt.rs's fused kernels, and kernels of this toolkit, which `recognize` uses where
gpt.rs has none.

Each is computed in float64 and rounded once. But a fused elementwise kernel rounds every node, as the ops that it replaces do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ptir_tools.core import errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import PluginFault
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.ir import Op, create
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import UNTYPED, TensorType, Type
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.ptir.kernels.targets import convolution, fused, kernels, trees
from ptir_tools.dialects.ptir.kernels.targets.fused import COLUMNS as COLUMNS
from ptir_tools.dialects.ptir.kernels.targets.fused import NODES as NODES
from ptir_tools.dialects.ptir.kernels.targets.fused import Values as Values
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.dialects.ptir.ops.kinds import DIMENSION_NUMBERS, Attrs, AttrValue
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, PARTS, Among, attribute, same_dtype, want

ANY = 1 << 31  # operands
ONLY_F32, ONLY_SI32 = (Among(str(d), frozenset((d,))) for d in (F32, SI32))


class Target(NamedTuple):
    """A kernel. `operands` are the least and the largest number of operands, `infer` is the type rule, and `body` computes the
    result on float64 arrays. `attrs` and `optional` are the kinds of attributes, `dtypes` those of operands; `check` sees the op
    when its types are right. With the error rule `opaque`, every engine runs `body`, and no error bound is known. With
    `has_kernel`, engines have steps of their own for it, and do not decompose it."""

    operands: tuple[int, int]
    infer: Callable[[tuple[TensorType, ...], Values], Type]
    body: Callable[[tuple[Array, ...], Values, TensorType], Array]
    attrs: dict[str, str]
    optional: dict[str, str]
    dtypes: Among = ONLY_F32
    flags: tuple[int, ...] = ()  # the operands that may be i1
    tables: tuple[int, ...] = ()  # the operands of si32
    check: Callable[[Op], None] | None = None
    has_kernel: bool = False
    error: errors.Rule = errors.opaque


def register(name: str, target: Target) -> None:
    """Add a known target. Raises ValueError when the name exists."""
    if name in TARGETS:
        raise ValueError(f"there is a custom call `{name}` already")
    TARGETS[name] = target


def values_of(target: str, attrs: Attrs) -> Values:
    """The attributes by name. Raises Violation("InvalidAttributeValue") for one that is missing, unknown or of another kind."""
    known = TARGETS[target].attrs | TARGETS[target].optional
    values: dict[str, AttrValue] = {}
    for key, (kind, value) in attrs:
        attribute(key in known, f"{target} has no attribute {key} (it has: {', '.join(sorted(known))})", key)
        attribute(kind == known[key], f"{target}: {key} is {kind}, expected {known[key]}", key)
        values[key] = value
    missing = [k for k in TARGETS[target].attrs if k not in values]
    attribute(not missing, f"{target} needs the attribute {', '.join(missing)}", "attrs")
    return values


def result_type(target: str, types: tuple[TensorType, ...], attrs: Attrs) -> Type:
    """The result type of a known target; UNTYPED (the declared type) for any other.

    Raises Violation for operands and attributes that a known target does not take.
    """
    kernel = TARGETS.get(target)
    if kernel is None:
        return UNTYPED
    least, most = kernel.operands
    require(least <= len(types) <= most, "OperandCountMismatch", f"{target} takes {least} to {most} operands, got {len(types)}")
    for i, t in enumerate(types):
        if t.dtype is I1 and i in kernel.flags:
            continue
        if i in kernel.tables:
            want(t.dtype, ONLY_SI32, f"operand {i} of {target}", at=operand(i))
            continue
        want(t.dtype, kernel.dtypes, f"an operand of {target}")
        same_dtype(types[0], t)
    return kernel.infer(types, values_of(target, attrs))


def check(op: Op) -> None:
    """What the operands of a call of a known target must be besides their types. Raises Violation."""
    kernel = TARGETS.get(op.attr("target"))
    if kernel is not None and kernel.check is not None:
        kernel.check(op)


def has_kernel(op: Op) -> bool:
    """Whether `op` is a custom call for which engines have steps of their own."""
    return op.defn.name == "ptir.custom_call" and (kernel := TARGETS.get(op.attr("target"))) is not None and kernel.has_kernel


def error(step: errors.Step) -> list[errors.Error]:
    """The error rule of a call of a known target."""
    return TARGETS[step.op.attr("target")].error(step)


def call(target: str, xs: tuple[Array, ...], attrs: Attrs, result: TensorType) -> Array:
    """Run a known target. Raises Violation("Unimplemented") for any other."""
    kernel = TARGETS.get(target)
    if kernel is None:
        raise Violation("Unimplemented", f"no implementation of the custom call {target}", at="target")

    def body(*wide: Array) -> Array:
        made: Array = np.asarray(kernel.body(wide, values_of(target, attrs), result))
        if made.dtype == object or (result.is_static and made.shape != result.static_shape):
            given = type(made.item()).__name__ if made.dtype == object and made.ndim == 0 else f"an array of shape {made.shape}"
            raise PluginFault(kernel.body, f"the kernel `{target}` gives {given}, not an array for {result}")
        return made

    return numerics.compute(result, body, *xs)


def stop(violation: Violation, t: Type) -> Op:
    """A call of `ptir.stop.v1`: it has a result of type `t`, and fails with the violation when it runs."""
    target, attrs = stopping(violation)
    return create(OPS["ptir.custom_call"], [()], {"target": target, "attrs": attrs}, types=[t], loc=violation.loc)


def stopping(violation: Violation) -> tuple[str, Attrs]:
    """The target and the attributes of such a call."""
    return "ptir.stop.v1", (("code", ("String", violation.code)), ("message", ("String", violation.message)))


def _stopped(_: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    raise Violation(str(values["code"]), str(values["message"]))


_CONV = {"window": "I64Array", "strides": "I64Array", "dilation": "I64Array", "padding": "I64Array"}
_STATIC = {"static_operands": "I64Array"}
_NODE = dict.fromkeys(COLUMNS, "I64Array")
_FUSION = {"fusion_version": "I64", "fusion_kind": "String"}
_MADE = {"fusion_generated": "Bool", "fusion_score": "I64"}
_DOT = {f"dot_{k}": "I64Array" for k in DIMENSION_NUMBERS}
_EPILOGUE = _FUSION | _MADE | {"dot_add_input": "I64"}
_NORM = {"axis": "I64", "eps": "F64"}

_conv = Target((2, 3), convolution.conv_type, convolution.conv, _CONV, _STATIC)
_depthwise = Target((2, 3), convolution.depthwise_type, convolution.depthwise, _CONV, _STATIC)
_grouped = Target((2, 3), convolution.grouped_type, convolution.grouped, _CONV | {"groups": "I64"}, {}, FLOATS)
_softmax = Target((1, 1), kernels.softmax_type, kernels.softmax, {"axis": "I64"}, {})
_elementwise = partial(Target, (1, ANY), fused.elementwise_type, fused.elementwise, check=fused.inputs_broadcast)
_layer_norm = Target((3, 3), kernels.layer_norm_type, kernels.layer_norm, _NORM, {})

TARGETS: dict[str, Target] = {
    "gpt_rs.c.conv2d.nhwc.f32.v1": _conv,
    "gpt_rs.faer.conv2d.nhwc.f32.v1": _conv,
    "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1": _depthwise,
    "gpt_rs.c.fused_elementwise.f32.v1": _elementwise(_NODE, _FUSION | _MADE),
    "gpt_rs.triton.fused_elementwise.f32.v1": _elementwise(_NODE | _FUSION, _MADE),
    "gpt_rs.triton.fused_dot_bias.f32.v1": Target((3, 3), fused.dot_bias_type, fused.dot_bias, _DOT, _EPILOGUE),
    "gpt_rs.triton.fused_softmax_last_axis.f32.v1": _softmax,
    "gpt_rs.triton.fused_layer_norm.f32.v1": _layer_norm,
    "ptir.softmax.v1": Target((1, 1), kernels.any_softmax_type, kernels.softmax, {"axis": "I64"}, {}, FLOATS),
    "ptir.log_softmax.v1": Target((1, 1), kernels.any_softmax_type, kernels.log_softmax, {"axis": "I64"}, {}, FLOATS),
    "ptir.rms_norm.v1": Target((2, 2), kernels.rms_norm_type, kernels.rms_norm, _NORM, {}, FLOATS),
    "ptir.gelu.v1": Target((1, 1), kernels.gelu_type, kernels.gelu, {"approximate": "String"}, {}, FLOATS),
    "ptir.silu.v1": Target((1, 1), kernels.same_type, kernels.silu, {}, {}, FLOATS),
    "ptir.attention.v1": Target(
        (3, 4), kernels.attention_type, kernels.attention, {"scale": "F64"}, {"masked": "F64"}, FLOATS, (3,)
    ),
    "ptir.conv2d.nhwc.v1": _grouped,
    "ptir.tree_ensemble.v1": Target(
        *((6, 6), trees.ensemble_type, trees.ensemble, {"outputs": "I64", "aggregate": "String"}, {}, PARTS),
        tables=trees.TABLES,
        check=trees.check_constants,
        has_kernel=True,
    ),
    "ptir.stop.v1": Target((0, 0), lambda types, values: UNTYPED, _stopped, {"code": "String", "message": "String"}, {}),
}
