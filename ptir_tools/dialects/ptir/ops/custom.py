"""Custom calls (contract: "Custom calls"). The meaning of the known targets is in `kernels/targets`."""

from __future__ import annotations

import re

from ptir_tools.core import errors
from ptir_tools.core.declare import always, op
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import CALLS, PURE
from ptir_tools.core.lazy import Later, late, lazy, regex
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects.ptir.ops.kinds import ATTR_KINDS
from ptir_tools.dialects.ptir.ops.typerules import attribute, rule

if TYPE_CHECKING:
    from ptir_tools.core.declare import Many
    from ptir_tools.dialects.ptir.kernels import targets
    from ptir_tools.dialects.ptir.ops.kinds import Attrs, Result
else:
    targets = lazy("ptir_tools.dialects.ptir.kernels.targets")

drawing = Later("ptir_tools.dialects.ptir.drawing")

_TARGET = regex(r"[A-Za-z_]\w*(\.\w+)+\.v\d+", re.ASCII)


def check_attrs(attrs: Attrs) -> None:
    """Raise Violation("InvalidAttributeValue") unless the keys are sorted and distinct and every value is of its kind."""
    keys = [key for key, _ in attrs]
    attribute(keys == sorted(set(keys)), "the keys of attrs are not distinct", "attrs")
    attribute("" not in keys, "attrs has a value without a key", "attrs")
    for key, (kind, value) in attrs:
        attribute(kind in ATTR_KINDS, f"attrs.{key} has the unknown kind {kind}", "attrs")
        many = isinstance(value, tuple)
        items = value if isinstance(value, tuple) else (value,)
        fits = many == kind.endswith("Array") and all(type(v) is ATTR_KINDS[kind] for v in items)
        attribute(fits, f"attrs.{key} is {value!r}, which is not of kind {kind}", "attrs")


@rule
def custom_call_type(xs: tuple[TensorType, ...], *, target: str, attrs: Attrs) -> Type:
    """The declared result type. The target must have a namespace and a version; a known target also checks its operands."""
    message = f"target {target!r} is not namespaced and versioned (like ns.op.v1)"
    attribute(_TARGET.fullmatch(target), message, "target")
    check_attrs(attrs)
    return targets.result_type(target, xs, attrs)


@op(
    "ptir.custom_call",
    infer=custom_call_type,
    check=late("ptir_tools.dialects.ptir.kernels.targets", "check"),
    traits=PURE | CALLS,
    error=errors.through("decompose", late("ptir_tools.dialects.ptir.kernels.targets", "error")),
    generate=drawing.draw_custom_call,
    fails=always,
    cost=late("ptir_tools.dialects.ptir.composites.calls", "cost"),
)
def custom_call(xs: Many, *, target: str, attrs: Attrs = (), result: Result) -> Data:
    """A fused kernel by name; the declared result type is authoritative. Contract: CustomCall.

    Known targets run as their decomposition: see docs/ptir.md. Any other target verifies and is Unimplemented at run time.
    InvalidAttributeValue: the target has no namespace or version, an attribute is malformed, or a known target does not accept
    it or the constants that are its operands.
    """
    return targets.call(target, xs, attrs, result)
