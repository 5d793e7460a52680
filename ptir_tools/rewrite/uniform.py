"""Elementwise ops on splats: one element is computed. Results are cached, and computed in batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import Literal, Op, OpDef, Value
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.rewrite.constants import element_of, literal_of

Elements = tuple[tuple[DType, bytes], ...]  # one of each operand
Question = tuple[OpDef, object, DType, Elements]  # the attributes by their key, which tells 0.0 and -0.0 apart
_REMEMBERED = 1 << 16
_CONTEXT = Context()  # the computation does not use the context
_answers: dict[Question, bytes | None] = {}


def elements_of(literals: Iterable[Literal | None]) -> Elements | None:
    """The element of each splat literal; None when one is not a splat, or has no payload."""
    elements = []
    for x in literals:
        if x is None or (data := element_of(x)) is None:
            return None
        elements.append((x.type.dtype, data))
    return tuple(elements)


def uniform(d: OpDef, attrs: tuple[object, ...], dtype: DType, elements: Elements) -> bytes | None:
    """The element, of `dtype`, of an elementwise op on splats; None where it would fail."""
    question = (d, d.key(attrs), dtype, elements)
    if question not in _answers:
        _remember([question], _compute(d, attrs, dtype, [elements]) or [None])
    return _answers[question]


def uniform_each(ops: Iterable[Op]) -> dict[Op, bytes]:
    """Those of `ops`, elementwise and on constants, that `uniform` has an answer for; those of a kind are computed together."""
    by_op: dict[Op, Question] = {}
    kinds: defaultdict[object, dict[Question, Op]] = defaultdict(dict)
    for op in ops:
        d, t, elements = op.defn, op.results[0].type, elements_of(map(literal_of, op.operands))
        if isinstance(t, TensorType) and elements is not None:
            by_op[op] = question = (d, d.key(op.attrs), t.dtype, elements)
            if question not in _answers:
                kinds[d, question[1], t.dtype, *[dtype for dtype, _ in elements]][question] = op
    for questions in kinds.values():
        (d, _, dtype, _), op = next(iter(questions.items()))
        answers = _compute(d, op.attrs, dtype, [elements for *_, elements in questions])
        if answers is not None:
            _remember(questions, answers)
    results = {op: uniform(d, op.attrs, dtype, elements) for op, (d, _, dtype, elements) in by_op.items()}
    return {op: data for op, data in results.items() if data is not None}


def _remember(questions: Iterable[Question], answers: Sequence[bytes | None]) -> None:
    if len(_answers) > _REMEMBERED:
        _answers.clear()
    _answers.update(zip(questions, answers, strict=True))


def _compute(d: OpDef, attrs: tuple[object, ...], dtype: DType, wanted: Sequence[Elements]) -> Sequence[bytes] | None:
    """The results on `wanted`, which have the same dtypes; None where one of them fails, or where elements share bytes."""
    n = len(wanted)
    if n > 1 and any(t.bits == 4 for t in (dtype, *[t for t, _ in wanted[0]])):
        return None
    op = Op(d, (), attrs)
    op.results = (Value(tensor(dtype, (n,)), "", op),)
    columns = zip(*wanted, strict=True)
    operands = [arrays.unpack(b"".join([data for _, data in column]), column[0][0], n) for column in columns]
    result = computed(op, operands, _CONTEXT)
    if result is None:
        return None
    data = arrays.pack(result, dtype)
    size = len(data) // n
    return [data[i : i + size] for i in range(0, len(data), size)]
