"""Matrix products."""

from __future__ import annotations

from collections import Counter

from ptir_tools.bridges.onnx.ops.elementwise import centered
from ptir_tools.bridges.onnx.ops.shape import cut, expanded
from ptir_tools.bridges.onnx.table import Node, back, fixed, handles, one_shape, plus, refused, stretched, wide
from ptir_tools.core.dtypes import DType
from ptir_tools.core.types import Dim
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
def einsum(node: Node) -> Tensor:
    """Einsum: products, summed over the letters that the result does not have."""
    equation = node.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    xs = node.all()
    given = left.split(",")
    if len(given) != len(xs):
        raise Violation("InvalidModel", f"`equation` has {len(given)} terms for {len(xs)} operands")
    terms = [_number_dots(t, x.rank) for t, x in zip(given, xs, strict=True)]
    extents: dict[str, Dim] = {}
    for t, x in zip(terms, xs, strict=True):
        if len(t) != x.rank:
            raise Violation("InvalidModel", f"`equation`: the term {t} is for {len(t)} axes, and {x.type} has {x.rank}")
        for c, d in zip(t, x.shape, strict=True):
            known = extents.setdefault(c, d)
            if isinstance(known, int) and isinstance(d, int) and known != d and 1 not in (known, d):
                raise Violation("InvalidModel", f"`equation`: {c} is {known} in one operand and {d} in another")
    if arrow:
        wide_ = max((t for t in terms), key=lambda t: sum(c.isdigit() for c in t))
        dots = "".join(c for c in wide_ if c.isdigit())
        out = right.replace("...", dots)
    else:
        count = Counter("".join(terms))
        out = "".join(sorted(c for c in count if c.isdigit())) + "".join(
            sorted(c for c in count if count[c] == 1 and c.isalpha())
        )
    pairs = [_simplify(x, t, out, terms, k) for k, (x, t) in enumerate(zip(xs, terms, strict=True))]
    x, term = pairs[0]
    for k, (y, other) in enumerate(pairs[1:], 1):
        later = out + "".join(t for _, t in pairs[k + 1 :])
        x, term = _contract(x, term, y, other, later)
    gone = [i for i, c in enumerate(term) if c not in out]
    if gone:
        x, term = x.reduce_sum(gone), "".join(c for c in term if c in out)
    order = [term.index(c) for c in out]
    return x if order == sorted(order) else x.transpose(order)


def _number_dots(term: str, rank: int) -> str:
    """A term with digits for the dots, counted from the right."""
    if "..." not in term:
        return term
    n = rank - len(term) + 3
    return term.replace("...", "".join(str(i) for i in reversed(range(n))))


def _simplify(x: Tensor, term: str, out: str, terms: list[str], k: int) -> tuple[Tensor, str]:
    """A factor without repeated letters, summed over the letters that only it has."""
    for c in {c for c in term if term.count(c) > 1}:
        i = term.index(c)
        j = term.index(c, i + 1)
        x, term = _diagonal(x, i, j), term[:j] + term[j + 1 :]
    others = out + "".join(t for i, t in enumerate(terms) if i != k)
    gone = [i for i, c in enumerate(term) if c not in others]
    return (x.reduce_sum(gone), "".join(c for c in term if c in others)) if gone else (x, term)


def _diagonal(x: Tensor, i: int, j: int) -> Tensor:
    rest = [a for a in range(x.rank) if a not in (i, j)]
    n = fixed(x.shape[i])
    flat = x.transpose([i, j, *rest]).reshape([n * n, *(x.shape[a] for a in rest)])
    picked = flat.take(x.block.constant([k * n + k for k in range(n)], "si64"))
    order = [0 if a == i else 1 + rest.index(a) for a in range(x.rank) if a != j]
    return picked.transpose(order)


def _contract(x: Tensor, a: str, y: Tensor, b: str, later: str) -> tuple[Tensor, str]:
    shared = [c for c in a if c in b]
    for c in shared:  # an extent of 1 is broadcast
        i, j = a.index(c), b.index(c)
        if x.shape[i] != y.shape[j]:
            shape = one_shape((x.shape[i],), (y.shape[j],))[0]
            x = stretched(x, tuple(shape if k == i else d for k, d in enumerate(x.shape)))
            y = stretched(y, tuple(shape if k == j else d for k, d in enumerate(y.shape)))
    batch = [c for c in shared if c in later]
    summed = [c for c in shared if c not in later]
    out = x.dot_general(
        y,
        batch_lhs=[a.index(c) for c in batch],
        batch_rhs=[b.index(c) for c in batch],
        contract_lhs=[a.index(c) for c in summed],
        contract_rhs=[b.index(c) for c in summed],
    )
    return out, "".join([*batch, *(c for c in a if c not in shared), *(c for c in b if c not in shared)])


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
