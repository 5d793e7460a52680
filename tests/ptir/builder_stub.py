"""The text of ptir_tools/dialects/ptir/builder/methods.pyi, made from the op declarations, in the layout of `ruff format`."""

from __future__ import annotations

from inspect import Parameter

from ptir_tools.core.ir import ELEMENTWISE, MANY, MAYBE, OpDef
from ptir_tools.dialects.ptir.builder.methods import methods, parameters
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS

WIDTH = 130
HEAD = '''"""The methods of a builder's values and blocks, for editors and type checkers.

Generated from the op declarations: `pytest tests/ptir/test_build.py --bless` writes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import OpDef
from ptir_tools.core.types import Dim, Type
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.expression import Number

def methods() -> tuple[list[OpDef], list[OpDef]]: ...
def positional(defn: OpDef) -> int: ...
'''
KINDS = {
    "DType": "str | DType",
    "tuple[int, ...]": "Iterable[int]",
    "tuple[float, ...]": "Iterable[float]",
    "tuple[tuple[int, int], ...]": "Iterable[Iterable[int]]",
    "Shape": "Iterable[Dim | str]",
    "NewShape": "Iterable[Dim | str]",
    "Scalar": "Number",
    "Attrs": "Mapping[str, Any]",
    **{kind: "Literal[" + ", ".join(f'"{each}"' for each in known) + "]" for kind, known in ENUMERATIONS.items()},
}


def stub() -> str:
    """The whole file."""
    tensors, blocks = methods()
    classes = [
        ("TensorMethods", "Every op whose first operand is one tensor, as a method of that tensor.", tensors, True),
        ("BlockMethods", "Every op without regions: its operands, then its attributes.", blocks, False),
    ]
    return HEAD + "".join(_class(*each) for each in classes)


def _class(name: str, doc: str, defns: list[OpDef], bound: bool) -> str:
    return f'\nclass {name}:\n    """{doc}"""\n\n' + "\n".join(_method(d, bound) for d in defns)


def _method(defn: OpDef, bound: bool) -> str:
    given = ["self"]
    for p in parameters(defn)[bound:]:
        if p.kind is Parameter.KEYWORD_ONLY and "*" not in given:
            given.append("*")
        given.append(f"{p.name}: {_annotation(defn, p)}" + ("" if p.default is Parameter.empty else " = ..."))
    if defn.short == "custom_call":
        given.append("types: Sequence[Type] | None = ...")
    doc = defn.doc.strip().splitlines()[0].partition(" Contract:")[0]
    return f'{_signature(defn.short, given)}\n        """{doc}"""\n'


def _annotation(defn: OpDef, p: Parameter) -> str:
    if p.name in {g.name for g in defn.groups}:
        one = "Tensor | Number" if ELEMENTWISE in defn.traits and len(defn.groups) > 1 else "Tensor"
        return {MANY: f"Sequence[{one}]", MAYBE: f"{one} | None"}.get(p.annotation, one)
    kind, _, none = p.annotation.partition(" | None")
    return KINDS.get(kind, kind) + (" | None" if _ else "") + none


def _signature(name: str, given: list[str]) -> str:
    line = f"    def {name}({', '.join(given)}) -> Tensor:"
    if len(line) <= WIDTH:
        return line
    inner = f"        {', '.join(given)}"
    if len(inner) <= WIDTH:
        return f"    def {name}(\n{inner}\n    ) -> Tensor:"
    return f"    def {name}(\n" + "".join(f"        {p},\n" for p in given) + "    ) -> Tensor:"
