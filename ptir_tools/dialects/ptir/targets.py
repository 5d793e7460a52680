"""The targets of custom calls that this toolkit knows: those of gpt.rs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.types import UNTYPED, Type

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.ops.kinds import Attrs


def result_type(target: str, types: tuple[Type, ...], attrs: Attrs) -> Type:
    """The result type of a known target; UNTYPED (what the declaration says) for any other."""
    return UNTYPED


def call(target: str, xs: tuple[Any, ...], attrs: Attrs, result: Type) -> Any:
    """Run a known target. Raises Violation("Unimplemented") for any other."""
    raise Violation("Unimplemented", f"no implementation of the custom call {target}", at="target")
