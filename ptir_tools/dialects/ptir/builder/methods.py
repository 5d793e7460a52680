"""The methods of tensors and blocks, one per declared op. `methods.pyi` has their signatures for editors and type checkers
(generated: `pytest tests/ptir/test_build.py --bless`)."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature

from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import MANY, REQUIRED, Attribute, Derived, OpDef
from ptir_tools.dialects.ptir import DIALECT

_SELF = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)


class TensorMethods:
    """Every op whose first operand is one tensor, as a method of that tensor."""

    __slots__ = ()


class BlockMethods:
    """Every op without regions: its operands, then its attributes."""

    __slots__ = ()


def of_tensor(defn: OpDef) -> Callable[..., object]:
    """The method of an op's first operand."""

    def call(self: object, *arguments: object, **attrs: Attribute) -> object:
        return self.block.op(defn.short, self, *arguments, **attrs)

    return _described(call, defn, [p for p in parameters(defn) if p.name != defn.groups[0].name])


def of_block(defn: OpDef) -> Callable[..., object]:
    """The method of a block."""

    def call(self: object, *arguments: object, **attrs: Attribute) -> object:
        return self.op(defn.short, *arguments, **attrs)

    return _described(call, defn, parameters(defn))


def _described(call: Callable[..., object], defn: OpDef, given: list[Parameter]) -> Callable[..., object]:
    call.__name__ = call.__qualname__ = defn.short
    call.__doc__ = defn.doc
    call.__dict__["__signature__"] = Signature([_SELF, *given])
    return call


def parameters(defn: OpDef) -> list[Parameter]:
    """The operands and attributes of an op. Those after the first attribute with a default are keywords. The default `...`
    is one that follows from other attributes."""
    found = [Parameter(g.name, Parameter.POSITIONAL_OR_KEYWORD, annotation=g.kind) for g in defn.groups]
    first = positional(defn)
    for i, a in enumerate(defn.attrs):
        kind = Parameter.POSITIONAL_OR_KEYWORD if i < first else Parameter.KEYWORD_ONLY
        default = Parameter.empty if a.default is REQUIRED else ... if isinstance(a.default, Derived) else a.default
        found.append(Parameter(a.name, kind, default=default, annotation=a.kind))
    return found


def positional(defn: OpDef) -> int:
    """The number of attributes that may be positional: those before the first that has a default."""
    return next((i for i, a in enumerate(defn.attrs) if a.default is not REQUIRED), len(defn.attrs))


def methods() -> tuple[list[OpDef], list[OpDef]]:
    """The ops that are methods of tensors, and those that are methods of blocks."""
    plain = [d for name, d in sorted(OPS.items()) if name.startswith(f"{DIALECT.name}.") and not d.regions and not d.is_constant]
    return [d for d in plain if d.groups and d.groups[0].kind != MANY], plain


for _defn in methods()[0]:
    setattr(TensorMethods, _defn.short, of_tensor(_defn))
for _defn in methods()[1]:
    setattr(BlockMethods, _defn.short, of_block(_defn))
