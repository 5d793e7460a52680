"""Matrix products."""

from __future__ import annotations

from ptir_tools.bridges.linalg.einsum import einsum, equation
from ptir_tools.bridges.onnx.ops.elementwise import centered
from ptir_tools.bridges.onnx.ops.shape import cut, expanded
from ptir_tools.bridges.onnx.table import Node, back, fixed, handles, one_shape, plus, refused, stretched, wide
from ptir_tools.core.dtypes import DType
from ptir_tools.core.violations import Violation, operand
from ptir_tools.dialects.ptir.builder.build import Tensor


def matmul(x: Tensor, y: Tensor, accum: DType | None = None) -> Tensor:
    """NumPy's `matmul`: a product over the last two axes with broadcast batch axes; either side may be a vector."""
    if x.rank == 1 or y.rank == 1:
        a = expanded(x, [0]) if x.rank == 1 else x
        b = expanded(y, [1]) if y.rank == 1 else y
        whole = matmul(a, b, accum)
        gone = {whole.rank - 2} if x.rank == 1 else set()
        gone |= {whole.rank - 1} if y.rank == 1 else set()
        return whole.reshape([d for i, d in enumerate(whole.shape) if i not in gone])
    x, y = _agreeing(x, y)
    if y.rank == 2:
        return x.dot_general(y, contract_lhs=[x.rank - 1], contract_rhs=[0], accum_dtype=accum, out_dtype=accum)
    batch = one_shape(x.shape[:-2], y.shape[:-2])
    x, y = (stretched(v, (*batch, *v.shape[-2:])) for v in (x, y))
    both, n = range(len(batch)), len(batch)
    return x.dot_general(
        y, batch_lhs=both, batch_rhs=both, contract_lhs=[n + 1], contract_rhs=[n], accum_dtype=accum, out_dtype=accum
    )


def _agreeing(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two factors of a product, with one extent where they are summed. A symbol that must equal another extent is reshaped to it,
    which the run checks."""
    d, e = x.shape[-1], y.shape[-2]
    if d == e:
        return x, y
    if isinstance(d, int) and isinstance(e, int):
        message = f"rows of {x.type} have {d} elements, and columns of {y.type} have {e}"
        raise Violation("OperandShapeMismatch", message, at=operand(1))
    if isinstance(d, int):
        return x, y.reshape([*y.shape[:-2], d, y.shape[-1]])
    return x.reshape([*x.shape[:-1], e]), y


@handles("MatMul")
def product(node: Node) -> Tensor:
    """MatMul."""
    return matmul(node[0], node[1])


@handles("Gemm")
def gemm(node: Node) -> Tensor:
    """Gemm: `alpha A B + beta C`, with A and B optionally transposed."""
    a, b = node[0], node[1]
    left, right = (0 if node.attr("transA") else 1), (1 if node.attr("transB") else 0)
    out = a.dot_general(b, contract_lhs=[left], contract_rhs=[right])
    node.idle("broadcast")  # of operator sets before 7: whether C is broadcast, which its type says
    if node.attr("alpha") != 1:
        out = back(wide(out) * _number(node.attr("alpha"), out), out)
    if node.attr("beta") == 0:
        node.idle(2)
    elif node.has(2):
        c = node[2]
        if node.attr("beta") != 1:
            c = back(wide(c) * _number(node.attr("beta"), c), c)
        out = plus(out, c)
    return out


def _number(x: float, like: Tensor) -> float | int:
    return int(x) if like.dtype.is_integer else x


@handles("Einsum")
def einstein(node: Node) -> Tensor:
    """Einsum: products, summed over the letters that the result does not have."""
    xs = node.all()
    try:
        read = equation(node.attr("equation"), [x.shape for x in xs])
    except ValueError as error:
        raise Violation("InvalidModel", f"{error}") from None
    return einsum(read, xs, stretched)


@handles("MatMulInteger")
def matmul_integer(node: Node) -> Tensor:
    """MatMulInteger: the product of 8-bit integers in 32 bits, with zero points subtracted."""
    return matmul(centered(node[0], node.get(2), [-1, 1]), centered(node[1], node.get(3)))


@handles("Det")
def det(node: Node) -> Tensor:
    """Det: determinants of small matrices, from those of their lower rows."""
    x = node[0]
    n = fixed(x.shape[-1])
    if n > 8:
        raise refused(f"Det of {n}x{n} matrices; up to 8x8 are expanded")
    lead = x.shape[:-2]
    rows = list(range(n))
    wide_ = wide(x).reshape([*lead, n * n])

    def entry(i: int, j: int) -> Tensor:
        k = i * n + j
        return cut(wide_, len(lead), k, 1).reshape(lead)

    minors: dict[tuple[int, ...], Tensor] = {(j,): entry(n - 1, j) for j in rows}
    for i in reversed(range(n - 1)):
        bigger: dict[tuple[int, ...], Tensor] = {}
        for columns in _choices(n, n - i):
            total = None
            for sign, j in enumerate(columns):
                term = entry(i, j) * minors[tuple(c for c in columns if c != j)]
                total = term if total is None else (total - term if sign % 2 else total + term)
            assert total is not None
            bigger[columns] = total
        minors = bigger
    return back(minors[tuple(rows)], x)


def _choices(n: int, k: int) -> list[tuple[int, ...]]:
    if k == 0:
        return [()]
    return [(*c, j) for c in _choices(n, k - 1) for j in range((c[-1] + 1) if c else 0, n)]
