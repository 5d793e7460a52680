"""Weights of a few bits of `com.microsoft`, with a scale and zero point per block of a row, and products with them."""

from __future__ import annotations

from ptir_tools.bridges.onnx.ops.elementwise import logical
from ptir_tools.bridges.onnx.ops.shape import cut, pad
from ptir_tools.bridges.onnx.table import DOMAIN, Node, axis, back, fixed, handles, plus, refused, wide
from ptir_tools.core.dtypes import F32, SI64, UI8
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor


def width(node: Node, name: str = "bits", default: int | None = None) -> int:
    """The attribute that is a number of bits. Raises Violation for one that is not read."""
    bits: int = node.attr(name, default)
    if bits not in (2, 4, 8):
        raise refused(f"{node.name} of {bits} bits")
    return bits


def unpacked(x: Tensor, bits: int) -> Tensor:
    """Rows of bytes as rows of integers of `bits` bits; the lowest of a byte are first. Other rows are as they are."""
    if bits == 8 or x.dtype is not UI8:
        return x
    (n, count), each, mask = x.shape, 8 // bits, (1 << bits) - 1
    higher = (x.shift_right_logical(k * bits) for k in range(1, each))
    parts = [x.bitwise_and(mask), *(y if k == each - 2 else y.bitwise_and(mask) for k, y in enumerate(higher))]
    return x.block.op("concat", [y.reshape([n, count, 1]) for y in parts], 2).reshape([n, fixed(count) * each])


def dequantized(whole: Tensor, scale: Tensor, zero: Tensor | float, block: int) -> Tensor:
    """Rows of integers [rows, columns] in f32. Each block of a row has a scale and a zero point, [rows, blocks]."""
    (rows, columns), blocks = whole.shape, fixed(scale.shape[1])
    whole = pad(whole, 1, 0, max(blocks * block - fixed(columns), 0)) if blocks > 1 else whole
    block = block if blocks > 1 else fixed(columns)
    parts = cut(whole, 1, 0, blocks * block).reshape([rows, blocks, block]).cast(F32)
    if isinstance(zero, Tensor):
        zero = cut(zero, 1, 0, blocks).cast(F32).reshape([rows, blocks, 1])
    y = (parts - zero) * wide(scale).reshape([rows, blocks, 1])
    return cut(y.reshape([rows, blocks * block]), 1, 0, min(fixed(columns), blocks * block))


@handles("MatMulNBits", domain=DOMAIN, bits=4)
def matmul_bits(node: Node) -> Tensor:
    """MatMulNBits: a product with a transposed matrix of 2, 4 or 8 bits, with a scale and zero point per block of a row. With
    `g_idx`, each column has the scale of the block that it names."""
    x, n, k, block, bits = node[0], node.attr("N"), node.attr("K"), node.attr("block_size"), width(node)
    blocks = -(-k // block)
    node.idle("accuracy_level")  # the least precision in which it may be computed
    whole, scale = unpacked(node[1].reshape([n, -1]), bits), node[2].reshape([n, blocks])
    given, groups = node.get(3), node.get(4)
    zero = float(1 << (bits - 1)) if given is None else unpacked(given.reshape([n, -1]), bits)
    if groups is None:
        weight = cut(dequantized(whole, scale, zero, block), 1, 0, k)
    elif isinstance(zero, Tensor):  # ONNX Runtime does not read the zero points then
        raise refused("MatMulNBits with both zero points and `g_idx`")
    else:
        columns = wide(scale).transpose([1, 0]).take(groups).transpose([1, 0])
        weight = (cut(whole, 1, 0, k).cast(F32) - zero) * columns
    y = back(wide(x).dot_general(weight, contract_lhs=[x.rank - 1], contract_rhs=[1]), x)
    return plus(y, node.get(5))


@handles("GatherBlockQuantized", domain=DOMAIN, bits=4, block_size=128, gather_axis=0, quantize_axis=1)
def gather_quantized(node: Node) -> Tensor:
    """GatherBlockQuantized: rows of a matrix of 2, 4 or 8 bits, with a scale and zero point per block of a row. A row that is not
    there is zeros."""
    table, scale, block = node.ranked(0, 2), node.ranked(2, 2), node.attr("block_size")
    if axis(node.attr("gather_axis"), 2) or axis(node.attr("quantize_axis"), 2) != 1:
        raise refused("GatherBlockQuantized along another axis than the rows of a matrix")
    if not table.dtype.is_integer:
        raise refused(f"GatherBlockQuantized of {table.dtype}")
    bits = width(node)
    at, rows = node[1].cast(SI64), fixed(table.shape[0])
    inside = logical("and", at >= -rows, at < rows)
    place = inside.select((at < 0).select(at + rows, at), 0).reshape([-1])
    given = node.get(3)
    points = None if given is None else unpacked(given.take(place), bits)
    zero = points if points is not None else float(1 << (bits - 1)) if table.dtype is UI8 else 0.0
    whole = unpacked(table.take(place), bits)
    if -(-fixed(whole.shape[1]) // block) != scale.shape[1]:
        raise Violation("InvalidModel", f"scales {scale.type} do not fit {table.type} in blocks of {block}")
    found = back(dequantized(whole, scale.take(place), zero, block), scale)
    shape = (*at.shape, found.shape[1])
    return inside.reshape([*at.shape, 1]).broadcast_to(shape).select(found.reshape(shape), 0.0)
