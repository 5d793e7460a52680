"""An evaluator that shares no code with the engines: every op that the reference runs is held to its meaning by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptir_tools.core import arrays
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.engines import RunOptions, run

from tests.oracles import extension_by_hand, movement_by_hand  # isort: skip  (they declare their meanings)
from tests.oracles.by_hand import MEANING  # isort: skip
from tests.oracles.check import check  # isort: skip

assert extension_by_hand and movement_by_hand
_CONTROL = ("cond", "while", "scan")  # held to by the tests of control flow
Run = Callable[[Program, Mapping[str, Any], RunOptions], Mapping[str, Any]]


def judged(program: Program, given: Mapping[str, Any], runs: Run = run) -> str | None:
    """What is wrong with the reference's run of a PTIR program on these inputs, op by op; None for nothing.

    Ops in regions are not judged: the observer hears results alone, not what a loop hands to its body.
    """
    values: dict[Value, Any] = dict(zip(program.main.params, given.values(), strict=True))
    wrong: list[str] = []

    def observe(op: Op, results: tuple[Any, ...]) -> None:
        values.update(zip(op.results, results, strict=True))
        if wrong or op.defn.short in _CONTROL or op not in own or op.defn.short not in MEANING:
            return
        want = _meaning(op, [_of(values, x) for x in op.operands])
        try:
            check(results[0], want, True)
        except AssertionError as error:
            wrong.append(f"{op.defn.short}: {error}"[:300])

    own = set(program.main.body)
    runs(program, given, RunOptions(engine="reference", observe=observe))
    return wrong[0] if wrong else None


def _of(values: Mapping[Value, Any], x: Operand) -> Any:
    if isinstance(x, Literal):
        return arrays.from_literal(x)
    return values[x.value][x.index] if isinstance(x, Element) else values[x]


def _meaning(op: Op, operands: list[Any]) -> Any:
    attrs = {k: op.attr(k) for k in op.defn.attr_index if op.attr(k) is not None}
    attrs = {k: arrays.from_literal(v) if isinstance(v, Literal) else v for k, v in attrs.items() if not isinstance(v, Region)}
    attrs = {k: str(v) if type(v).__name__ == "DType" else v for k, v in attrs.items()}
    if op.defn.short in ("reduce_sum", "reduce_max", "reduce_min"):
        attrs["name"] = op.defn.short
    if op.defn.short in ("concat", "sort"):
        operands = [operands]
    with np.errstate(all="ignore"):
        return MEANING[op.defn.short](*operands, **attrs)
