"""Einstein's sums: products of two operands after each other, each one product of matrices if it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.bridges.extent_ops import counted, measured
from ptir_tools.bridges.extents import dim, of
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import Dim, Shape
from ptir_tools.dialects.ptir.builder.build import Tensor

Fitted = Callable[[Tensor, Shape], Tensor]  # a tensor broadcast to a shape


class Equation(NamedTuple):
    """The letters of the operands and of the result, with digits for dots, and the extent of each letter."""

    terms: list[str]
    out: str
    extents: dict[str, Dim]


def equation(text: str, shapes: Sequence[Shape]) -> Equation:
    """The equation `text` of operands of these shapes. Raises ValueError where it does not fit them."""
    terms, out = _terms(text.replace(" ", ""), [len(s) for s in shapes])
    extents: dict[str, Dim] = {}
    for t, s in zip(terms, shapes, strict=True):
        if len(t) != len(s):
            raise ValueError(f"the equation has a term {t} for {len(t)} axes, and the operand has {len(s)}")
        for c, d in zip(t, s, strict=True):
            known = extents.setdefault(c, d)
            if known == 1 or (isinstance(d, int) and d != 1 and not isinstance(known, int)):
                extents[c] = d
            elif isinstance(known, int) and isinstance(d, int) and d not in (known, 1):
                raise ValueError(f"in the equation, {c} is {known} in one operand and {d} in another")
    if lost := set(out).difference(*terms):
        raise ValueError(f"the equation has {min(lost)} in its result, and in no operand")
    return Equation(terms, out, extents)


def einsum(read: Equation, xs: Sequence[Tensor], fitted: Fitted) -> Tensor:
    """The result of an equation of tensors of one dtype."""
    terms, out, extents = read
    pairs = [_own(x, t, out + "".join(terms[:k] + terms[k + 1 :])) for k, (x, t) in enumerate(zip(xs, terms, strict=True))]
    x, term = pairs[0]
    for k, (y, other) in enumerate(pairs[1:], 1):
        shapes = [tuple(extents[c] for c in t) for t in (term, other)]
        x, y = (v if v.shape == s else fitted(v, s) for v, s in zip((x, y), shapes, strict=True))
        x, term = _product(x, term, y, other, out + "".join(t for _, t in pairs[k + 1 :]))
    if gone := [i for i, c in enumerate(term) if c not in out]:
        x, term = x.reduce_sum(gone), "".join(c for c in term if c in out)
    return _ordered(x, term, out)


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of the operands and of the result. Digits for dots are counted from the right."""
    left, arrow, out = equation.partition("->")
    given = left.split(",")
    if len(given) != len(ranks):
        raise ValueError(f"the equation has {len(given)} terms for {len(ranks)} operands")
    spare = [max(rank - len(t) + 3, 0) if "..." in t else 0 for t, rank in zip(given, ranks, strict=True)]
    dots = ["".join(str(i) for i in reversed(range(n))) for n in spare]
    terms = [t.replace("...", d) for t, d in zip(given, dots, strict=True)]
    every, widest = "".join(terms), max(dots, key=len)
    if not arrow:
        out = "..." + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c.isalpha()))
    return terms, out.replace("...", widest)


def _own(x: Tensor, term: str, others: str) -> tuple[Tensor, str]:
    """A factor without repeated letters, summed over the letters that only it has."""
    for c in [c for i, c in enumerate(term) if c in term[:i]]:
        i = term.index(c)
        j = term.index(c, i + 1)
        x, term = _diagonal(x, i, j), term[:j] + term[j + 1 :]
    gone = [i for i, c in enumerate(term) if c not in others]
    return (x.reduce_sum(gone), "".join(c for c in term if c in others)) if gone else (x, term)


def _diagonal(x: Tensor, i: int, j: int) -> Tensor:
    """The elements where the indices along axes `i` and `j` are equal, along axis `i`."""
    n, rest = x.shape[i], [a for a in range(x.rank) if a not in (i, j)]
    flat = x.transpose([i, j, *rest]).reshape([dim(of(n) * of(n)), *(x.shape[a] for a in rest)])
    if isinstance(n, int):
        places = x.block.constant([k * n + k for k in range(n)], "si64")
    else:
        places = counted(x.block, of(n), SI64) * (measured(x.block, of(n)) + 1).reshape([1]).broadcast_to([n])
    return flat.take(places).transpose([0 if a == i else 1 + rest.index(a) for a in range(x.rank) if a != j])


def _product(x: Tensor, a: str, y: Tensor, b: str, later: str) -> tuple[Tensor, str]:
    """The product of two factors, summed over the letters of both that are not needed `later`, and its letters."""
    shared = [c for c in a if c in b]
    batch, summed = [c for c in shared if c in later], [c for c in shared if c not in later]
    out = "".join([*batch, *(c for c in a if c not in shared), *(c for c in b if c not in shared)])
    made = x.dot_general(
        y,
        batch_lhs=[a.index(c) for c in batch],
        batch_rhs=[b.index(c) for c in batch],
        contract_lhs=[a.index(c) for c in summed],
        contract_rhs=[b.index(c) for c in summed],
    )
    return made, out


def _ordered(x: Tensor, term: str, out: str) -> Tensor:
    order = [term.index(c) for c in out]
    return x if order == sorted(order) else x.transpose(order)
