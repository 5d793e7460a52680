"""`mlir`: the linalg lowering of a MIND module, as text. Output only.

Values are tensors: constants are `arith.constant`, matrix products `linalg.matmul`, convolutions `linalg.conv_2d_nhwc_hwcf` on
padded inputs. A broadcast, reduction or gather is a `linalg.generic` with indexing maps. The output is deterministic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from math import prod

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Literal, Op, Value
from ptir_tools.dialects.mind.mlir.lowering import (
    Lowering,
    axes_of,
    broadcast_map,
    dims,
    element_text,
    shape_of,
    tensor_text,
    zero_text,
)
from ptir_tools.dialects.mind.ops.indexing import clamped
from ptir_tools.dialects.mind.ops.linear import pads
from ptir_tools.dialects.mind.ops.reduce import normalized_axes
from ptir_tools.dialects.mind.text.writer import element_texts, nested


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The module of one function, `@main`, line by line. The program is verified and has static shapes."""
    function = program.main
    params = ", ".join(f"%{p.name}: {tensor_text(p.type)}" for p in function.params)
    results = [x for x in function.results if isinstance(x, Value)]
    types = ", ".join(tensor_text(x.type) for x in results)
    yield "module {\n"
    yield f"  func.func @main({params}) -> ({types}) {{\n"
    lowering = Lowering()
    for op in function.body:
        RULES[op.defn.short](lowering, op)
        yield from (f"    {line}\n" for line in lowering.lines)
        lowering.lines.clear()
    yield f"    return {', '.join(f'%{x.name}' for x in results)} : {types}\n"
    yield "  }\n}\n"


def constant(to: Lowering, op: Op) -> None:
    """`arith.constant` with a dense literal."""
    literal: Literal = op.attr("value")
    element = element_text(literal.type)
    width = {"f32": "<f", "f64": "<d"}.get(element)
    texts = element_texts(literal)
    if width:
        texts = [_float(x, float(v), width) for x, v in zip(texts, from_literal(literal).reshape(-1), strict=True)]
    to.let(f"arith.constant dense<{nested(texts, literal.type.static_shape)}> : {tensor_text(literal.type)}", op.result.name)


def _float(text: str, value: float, width: str) -> str:
    """A float as MLIR reads it: with a point, or its bits."""
    if text.lstrip("-") in ("inf", "nan"):
        return f"0x{int.from_bytes(struct.pack(width, value), 'little'):0{2 * struct.calcsize(width)}X}"
    head, e, tail = text.partition("e")
    return text if "." in head else f"{head}.0{e}{tail}"


def binary(name: str) -> Callable[[Lowering, Op], None]:
    """An arith op per element, operands broadcast by their maps."""

    def rule(to: Lowering, op: Op) -> None:
        element, shape = element_text(op.result.type), shape_of(op.result.type)
        short = name + ("f" if element.startswith("f") else "si" if name == "div" else "i")
        maps = [broadcast_map(shape_of(x.type), len(shape), shape) for x in op.values()]

        def body(arguments: Sequence[str]) -> str:
            return to.let(f"arith.{short} {arguments[0]}, {arguments[1]} : {element}")

        to.generic(op.result, [*op.values()], [*maps, axes_of(len(shape))], body, loops=len(shape), name=op.result.name)

    return rule


def neg(to: Lowering, op: Op) -> None:
    """`arith.negf`; for integers, a subtraction from zero."""
    x, t = op.values()[0], op.result.type
    if element_text(t).startswith("f"):
        to.let(f"arith.negf %{x.name} : {tensor_text(t)}", op.result.name)
        return
    to.let(f"arith.subi {to.zeros(t)}, %{x.name} : {tensor_text(t)}", op.result.name)


def unary(name: str) -> Callable[[Lowering, Op], None]:
    """An elementwise op on the whole tensor."""

    def rule(to: Lowering, op: Op) -> None:
        to.let(f"{name} %{op.values()[0].name} : {tensor_text(op.result.type)}", op.result.name)

    return rule


def relu(to: Lowering, op: Op) -> None:
    """Compare and select, so that a NaN gives 0."""
    t = op.result.type
    element, axes = element_text(t), axes_of(len(shape_of(t)))

    def body(arguments: Sequence[str]) -> str:
        zero = to.let(f"arith.constant {zero_text(element)} : {element}")
        positive = to.let(f"arith.cmpf ogt, {arguments[0]}, {zero} : {element}")
        return to.let(f"arith.select {positive}, {arguments[0]}, {zero} : {element}")

    to.generic(op.result, [*op.values()], [axes, axes], body, loops=len(axes), name=op.result.name)


def reduction(to: Lowering, op: Op) -> None:
    """A sum over the axes; for Mean divided by the number of elements."""
    x = op.values()[0]
    shape, element = shape_of(x.type), element_text(x.type)
    along = normalized_axes(op.attr("axes"), len(shape))
    keep = op.attr("keepdims") and op.attr("axes")
    into = ["0" if i in along else f"d{i}" for i in range(len(shape)) if keep or i not in along]
    suffix = "f" if element.startswith("f") else "i"
    mean = op.defn.short == "Mean"

    def add(arguments: Sequence[str]) -> str:
        return to.let(f"arith.add{suffix} {arguments[1]}, {arguments[0]} : {element}")

    name = "" if mean else op.result.name
    maps = [axes_of(len(shape)), into]
    init = to.zeros(op.result.type)
    total = to.generic(op.result, [x], maps, add, loops=len(shape), reductions=along, init=init, name=name)
    if mean:
        n = prod(shape[a] for a in along)
        count = f"{n}.0" if suffix == "f" else str(n)
        t = tensor_text(op.result.type)
        divisor = to.let(f"arith.constant dense<{count}> : {t}")
        to.let(f"arith.div{'f' if suffix == 'f' else 'si'} {total}, {divisor} : {t}", op.result.name)


def reshape(to: Lowering, op: Op) -> None:
    """Collapse all axes to one, and expand that; to or from a scalar, by its element."""
    x, t = op.values()[0], op.result.type
    source, shape = shape_of(x.type), shape_of(t)
    name, have, want = f"%{x.name}", tensor_text(x.type), tensor_text(t)
    if not source or not shape:
        at = ", ".join(to.let("arith.constant 0 : index") for _ in source)
        element = to.let(f"tensor.extract {name}[{at}] : {have}")
        to.let(f"tensor.from_elements {element} : {want}", op.result.name)
        return
    flat = f"tensor<{prod(shape)}x{element_text(t)}>"
    if len(source) > 1:
        name = to.let(f"tensor.collapse_shape {name} [{list(range(len(source)))}] : {have} into {flat}")
    split = list(range(len(shape)))
    to.let(f"tensor.expand_shape {name} [{split}] output_shape {list(shape)} : {flat} into {want}", op.result.name)


def transpose(to: Lowering, op: Op) -> None:
    """`linalg.transpose`; for a scalar, which tools refuse, its element."""
    x, t = op.values()[0], op.result.type
    if not shape_of(t):
        reshape(to, op)
        return
    types = f"ins(%{x.name} : {tensor_text(x.type)}) outs({to.empty(t)} : {tensor_text(t)})"
    to.let(f"linalg.transpose {types} permutation = {list(op.attr('permutation'))}", op.result.name)


def index(to: Lowering, op: Op) -> None:
    """The element at constant indices, as a tensor of rank 0."""
    x = op.values()[0]
    at = ", ".join(to.let(f"arith.constant {i} : index") for i in op.attr("indices"))
    element = to.let(f"tensor.extract %{x.name}[{at}] : {tensor_text(x.type)}")
    to.let(f"tensor.from_elements {element} : {tensor_text(op.result.type)}", op.result.name)


def slice_(to: Lowering, op: Op) -> None:
    """`tensor.extract_slice` with clamped bounds. A result without elements is `tensor.empty`, because its offset may be out
    of bounds."""
    x, t = op.values()[0], op.result.type
    if 0 in shape_of(t):
        to.let(f"tensor.empty() : {tensor_text(t)}", op.result.name)
        return
    low = [lo for lo, _ in clamped(shape_of(x.type), op.attr("starts"), op.attr("ends"))]
    bounds = f"{low} {list(shape_of(t))} {list(op.attr('steps'))}"
    to.let(f"tensor.extract_slice %{x.name}{bounds} : {tensor_text(x.type)} to {tensor_text(t)}", op.result.name)


def gather(to: Lowering, op: Op) -> None:
    """For each element of the result, the row of its index and the rest of its position."""
    x, indices = op.values()
    k, rank = len(shape_of(indices.type)), len(shape_of(op.result.type))

    def body(arguments: Sequence[str]) -> str:
        row = to.let(f"arith.index_cast {arguments[0]} : {element_text(indices.type)} to index")
        rest = [to.let(f"linalg.index {i} : index") for i in range(k, rank)]
        return to.let(f"tensor.extract %{x.name}[{', '.join([row, *rest])}] : {tensor_text(x.type)}")

    to.generic(op.result, [indices], [axes_of(k), axes_of(rank)], body, loops=rank, name=op.result.name)


def product(to: Lowering, op: Op) -> None:
    """`linalg.matmul` for two matrices, a generic for vectors and batches."""
    x, y = op.values()
    a, b, t = shape_of(x.type), shape_of(y.type), op.result.type
    init = to.zeros(t)
    if len(a) == len(b) == 2:
        ins = f"ins(%{x.name}, %{y.name} : {tensor_text(x.type)}, {tensor_text(y.type)})"
        to.let(f"linalg.matmul {ins} outs({init} : {tensor_text(t)}) -> {tensor_text(t)}", op.result.name)
        return
    element, shape = element_text(t), shape_of(t)
    suffix = "f" if element.startswith("f") else "i"
    inner = f"d{len(shape)}"
    rows, columns = min(len(a), 2) - 1, min(len(b), 2) - 1
    batch = shape[: len(shape) - rows - columns]
    left = [*broadcast_map(a[:-2], len(batch), batch), *([f"d{len(batch)}"] * rows), inner]
    right = [*broadcast_map(b[:-2], len(batch), batch), inner, *([f"d{len(batch) + rows}"] * columns)]

    def body(arguments: Sequence[str]) -> str:
        term = to.let(f"arith.mul{suffix} {arguments[0]}, {arguments[1]} : {element}")
        return to.let(f"arith.add{suffix} {arguments[2]}, {term} : {element}")

    maps = [left, right, axes_of(len(shape))]
    to.generic(op.result, [x, y], maps, body, loops=len(shape) + 1, reductions=(len(shape),), init=init, name=op.result.name)


def conv2d(to: Lowering, op: Op) -> None:
    """The input padded with zeros and sliced to the extent that the windows read, then `linalg.conv_2d_nhwc_hwcf`."""
    f, strides, t = list(op.values())[1], op.attr("strides"), op.result.type
    source, shape = _padded(to, op)
    element, window, result = element_text(t), shape_of(f.type), shape_of(t)
    reached = (shape[0], *((result[i] - 1) * strides[i - 1] + window[i - 1] for i in (1, 2)), shape[3])
    have = f"tensor<{dims(reached)}{element}>"
    if reached != shape:
        bounds = f"{[0] * 4} {list(reached)} {[1] * 4}"
        source = to.let(f"tensor.extract_slice {source}{bounds} : tensor<{dims(shape)}{element}> to {have}")
    init = to.zeros(t)
    attributes = f"{{dilations = dense<1> : tensor<2xi64>, strides = dense<{list(strides)}> : tensor<2xi64>}}"
    ins = f"ins({source}, %{f.name} : {have}, {tensor_text(f.type)})"
    name = op.result.name
    to.let(f"linalg.conv_2d_nhwc_hwcf {attributes} {ins} outs({init} : {tensor_text(t)}) -> {tensor_text(t)}", name)


def _padded(to: Lowering, op: Op) -> tuple[str, tuple[int, ...]]:
    """The padded input of a Conv2d, and its shape."""
    x, f = op.values()
    shape, element = shape_of(x.type), element_text(x.type)
    (top, bottom), (left, right) = pads(shape, shape_of(f.type), op.attr("strides"), op.attr("padding"))
    padded = (shape[0], shape[1] + top + bottom, shape[2] + left + right, shape[3])
    if padded == shape:
        return f"%{x.name}", shape
    zero = to.let(f"arith.constant {zero_text(element)} : {element}")
    name = to.let(f"tensor.pad %{x.name} low[0, {top}, {left}, 0] high[0, {bottom}, {right}, 0] {{")
    to.lines += ["^bb0(%i.0: index, %i.1: index, %i.2: index, %i.3: index):", f"  tensor.yield {zero} : {element}"]
    to.lines.append(f"}} : {tensor_text(x.type)} to tensor<{dims(padded)}{element}>")
    return name, padded


RULES: dict[str, Callable[[Lowering, Op], None]] = {
    "ConstI64": constant,
    "ConstF32": constant,
    "ConstF64": constant,
    "ConstTensor": constant,
    "Add": binary("add"),
    "Div": binary("div"),
    "Sub": binary("sub"),
    "Mul": binary("mul"),
    "Neg": neg,
    "Relu": relu,
    "Exp": unary("math.exp"),
    "Log": unary("math.log"),
    "Sum": reduction,
    "Mean": reduction,
    "Reshape": reshape,
    "ExpandDims": reshape,
    "Squeeze": reshape,
    "Transpose": transpose,
    "Index": index,
    "Slice": slice_,
    "Gather": gather,
    "Dot": product,
    "MatMul": product,
    "Conv2d": conv2d,
}

FORMAT = Format("mlir", "mind", None, write)
