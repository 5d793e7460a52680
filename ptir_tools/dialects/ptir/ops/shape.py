"""Shape and layout ops (contract: "Shape and layout ops")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptir_tools.core.diagnostics import require
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import MOVEMENT, PURE, op
from ptir_tools.core.types import TensorType

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")


def permuted(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    """C1: `perm` is a permutation of the axes of `x`."""
    axes = tuple(p + x.rank if p < 0 else p for p in perm)
    require(
        sorted(axes) == list(range(x.rank)),
        "InvalidAttributeValue",
        f"perm {list(perm)} is not a permutation of the {x.rank} axes of {x}",
        at="perm",
    )
    return x.with_shape(x.shape[a] for a in axes)


@op("ptir.transpose", infer=permuted, traits=PURE | MOVEMENT)
def transpose(x: Array, *, perm: tuple[int, ...]) -> Any:
    """Reorder axes: axis `i` of the result is axis `perm[i]` of `x`. Contract: Shape and layout ops, Transpose."""
    return np.transpose(x, perm)
