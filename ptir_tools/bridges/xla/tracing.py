"""A program as calls of JAX: every op by its row in `table.LOWERINGS`, regions as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Violation
from ptir_tools.rewrite.vocabulary import tensor_type

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
else:
    jnp = lazy("jax.numpy")

Lowering = Callable[[Op, Sequence[Data], "Tracing"], Data]


@dataclass(slots=True)
class Tracing:
    """The trace of one function: its failure flags, what its random ops drew, and the iteration limit of `while`. `observe` is
    called with each op of the outermost block. `keep` shards the result of an op over a mesh."""

    lowering: dict[str, Lowering]
    iterations: int
    drawn: dict[Op, Data] = field(default_factory=dict)
    flags: list[jax.Array] = field(default_factory=list)
    observe: Callable[[Op, tuple[Data, ...]], None] | None = None
    keep: Callable[[Op, Data], Data] | None = None

    def fails_where(self, mask: jax.Array) -> None:
        """Mark the run as failed where an element of `mask` is true."""
        self.flags.append(jnp.any(mask))

    def failed(self) -> jax.Array:
        """Whether the run has failed: an i1 scalar."""
        return jnp.any(jnp.stack(self.flags)) if self.flags else jnp.zeros((), bool)

    def region(self, region: Region) -> Callable[..., tuple[tuple[Data, ...], jax.Array]]:
        """A region as a pure function that returns its results, and whether it failed."""

        def call(*operands: Data) -> tuple[tuple[Data, ...], jax.Array]:
            inner = Tracing(self.lowering, self.iterations)
            return inner.block(region, operands), inner.failed()

        return call

    def block(self, block: Region, operands: Sequence[Data]) -> tuple[Data, ...]:
        """The results of a block on arrays. Raises Violation("NotTranslatable") for an op that has no lowering in JAX."""
        known: dict[Value, Data] = dict(zip(block.params, operands, strict=True))
        for op in block.body:
            if op in self.drawn:
                known[op.results[0]] = self.drawn[op]
                continue
            lowering = self.lowering.get(op.name)
            if lowering is None:
                raise Violation("NotTranslatable", f"{op.defn.short} has no lowering in JAX here", labels=[(op.loc, "this op")])
            result = lowering(op, [read(known, x) for x in op.operands], self)
            if self.keep is not None:
                result = self.keep(op, result)
            known[op.results[0]] = result
            if self.observe is not None:
                self.observe(op, (result,))
        return tuple(read(known, x) for x in block.results)


def read(known: dict[Value, Data], x: Operand) -> Data:
    """The array, or tuple of arrays, of an operand."""
    if isinstance(x, Literal):
        return jnp.asarray(arrays.from_literal(x))
    if isinstance(x, Element):
        return known[x.value][x.index]
    return known[x]


def dtype_of(op: Op, operand: int = 0) -> DType:
    """The dtype of a tensor operand."""
    return tensor_type(op.operands[operand]).dtype
