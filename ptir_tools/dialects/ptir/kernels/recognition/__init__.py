"""Recognition of network kernels in their decompositions: composites, the other spellings in `kernels/`, further conditions, and
the replacement.

The replacement is the op `layer_norm`, a custom call of gpt.rs if one fits, or a custom call of this toolkit. The inverse is in
`composites/calls.py`. A kernel with an interior value that is used elsewhere is not replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Graph, Tensor
from ptir_tools.dialects.ptir.composites import layers
from ptir_tools.dialects.ptir.kernels.examples import Example
from ptir_tools.dialects.ptir.kernels.recognition.attention import attention
from ptir_tools.dialects.ptir.kernels.recognition.convolution import (
    biased,
    convolution,
    depthwise_convolution,
    grouped_convolution,
    matrix_convolution,
)
from ptir_tools.dialects.ptir.kernels.recognition.replacement import Found
from ptir_tools.dialects.ptir.kernels.recognition.rows import gelu, layer_norm, log_softmax, rms_norm, silu, softmax
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.rewriter import Rewriter

Build = Callable[[Found], Value | None]


@dataclass(slots=True, frozen=True)
class Form:
    """The kernels of a file, the function that builds the replacement, and what that may change in floating point."""

    build: Build
    examples: Sequence[Example]
    effect: Effect = Effect.ROUNDING


class _Kernel(NamedTuple):
    file: str
    build: Build
    skip: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    products: bool = True
    effect: Effect = Effect.ROUNDING


_ROWS = ("reshape", "broadcast_to")
_AFFINE = ("gamma", "beta", "epsilon")
_SOFTMAX = ("ptir.softmax.v1", "gpt_rs.triton.fused_softmax_last_axis.f32.v1")

COMPOSITES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: layers.softmax(x, x.rank - 1),
    "log_softmax": lambda x: layers.log_softmax(x, x.rank - 1),
    "gelu": layers.gelu,
    "gelu_tanh": layers.gelu_tanh,
    "gelu_sigmoid": layers.gelu_sigmoid,
    "silu": layers.silu,
}
_KERNELS = (
    _Kernel("layer_norm", layer_norm, _ROWS, _AFFINE),
    _Kernel("layer_norm_moments", layer_norm, _ROWS, _AFFINE, effect=Effect.RANGE),
    _Kernel("rms_norm", rms_norm, _ROWS, _AFFINE),
    _Kernel("softmax", softmax, _ROWS),
    _Kernel("softmax_unshifted", softmax, _ROWS, effect=Effect.RANGE),
    _Kernel("log_softmax", log_softmax, _ROWS),
    _Kernel("gelu", gelu),
    _Kernel("gelu_tanh", gelu),
    _Kernel("gelu_sigmoid", gelu),
    _Kernel("silu", silu),
    _Kernel("silu_unbounded", silu, effect=Effect.RANGE),
    _Kernel("attention", attention, ("cast",), ("mask",)),
    _Kernel("convolution", convolution, ("reshape",), products=False),
    _Kernel("matrix_convolution", matrix_convolution, ("broadcast_to",), ("bias",), products=False),
    _Kernel("grouped_convolution", grouped_convolution, products=False),
    _Kernel("depthwise_convolution", depthwise_convolution, products=False),
    _Kernel("bias", biased, products=False),
)


def forms(convolutions: bool = False) -> list[Form]:
    """The forms, or only those of convolutions, in the order in which they are tried."""
    return [_form(k) for k in _KERNELS if not (convolutions and k.products)]


@cache
def _form(kernel: _Kernel) -> Form:
    return Form(kernel.build, _examples(kernel), kernel.effect)


def _examples(kernel: _Kernel) -> list[Example]:
    """The composite, and the kernels of the file; those that contain a softmax once for each custom call of one.

    The composite is in f64: its numbers are compared in the dtype of the program, and are exact there.
    """
    texts = dict.fromkeys(spellings(kernel.file).replace(_SOFTMAX[0], target) for target in _SOFTMAX)
    found = [composite(kernel.file, "f64").main] if kernel.file in COMPOSITES else []
    found += [example.kernel for t in texts if t for example in Example.read(t).values()]
    return [Example(f, skip=kernel.skip, optional=kernel.optional, products=kernel.products) for f in found]


def composite(name: str, dtype: str = "f32") -> Program:
    """The program of the composite `name`, for a small matrix."""
    graph = Graph(name)
    return graph.returns(COMPOSITES[name](graph.input("x", dtype, (2, 3))))


def spellings(name: str) -> str:
    """The kernels of a file as text; empty without the file."""
    file = files("ptir_tools.dialects.ptir").joinpath("kernels", f"{name}.ptir")
    return file.read_text("utf-8") if file.is_file() else ""


def recognize(form: Form, op: Op, rw: Rewriter, may: Callable[[str, Op, Op], bool]) -> bool:
    """Replace a kernel of `form` that ends at `op`, if `may(name, op, replacement)` allows it."""
    for example in form.examples:
        match = example.match(op, rw)
        if match is None or not match.closed:
            continue
        found = Found(match, rw)
        made = _built(form, found)
        if made is None or made.op is None or not may(example.kernel.name.replace("_", "-"), op, made.op):
            found.undo()
            continue
        rw.replace_all_uses(op.result, made)
        rw.erase(op)
        for inner in sorted(match.interior, key=rw.order.place, reverse=True):
            if rw.unused(inner):
                rw.erase(inner)
        return True
    return False


def _built(form: Form, found: Found) -> Value | None:
    """The replacement of a kernel; None when it computes something else, or when no target takes its operands."""
    try:
        made = form.build(found)
    except Violation:
        return None
    return made if made is not None and made.type is found.root.result.type else None
