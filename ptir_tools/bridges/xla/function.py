"""A program as a function of JAX arrays."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.bridges.xla.table import LOWERINGS
from ptir_tools.bridges.xla.tracing import Tracing
from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.evaluate import Context, Data, evaluate
from ptir_tools.core.ir import CALLS, Op, Region
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import current
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, flatten, leaves, nest
from ptir_tools.core.violations import Violation
from ptir_tools.passes import PassContext, run_pipeline

if TYPE_CHECKING:
    import jax
else:
    jax = lazy("jax")

MISSING = "needs JAX: pip install 'ptir-tools[xla]'"


def require_jax(what: str) -> None:
    """Raise UsageError, with the line that installs it, unless JAX is there."""
    try:
        jax.numpy  # noqa: B018
    except ImportError as error:
        raise UsageError(f"{what} {MISSING}") from error


def without_calls(program: Program) -> Program:
    """`program`, or a copy with known custom calls decomposed."""
    if not any(op.defn.traits & CALLS for b in program.blocks() for op in b.body):
        return program
    smaller = clone(program)
    run_pipeline(smaller, "decompose{calls-only=true}", PassContext(verify_each=False))
    return smaller


def unknown_ops(program: Program) -> list[Op]:
    """The ops of a PTIR program that have no lowering in JAX. Random ops of the outermost block draw before the run."""
    drawing = [op for op in program.main.body if op.defn.is_random]
    return [op for block in program.blocks() for op in block.body if op.name not in LOWERINGS and op not in drawing]


def drawn(block: Region, context: Context) -> dict[Op, Data]:
    """The arrays that random ops of the outermost block draw, by NumPy's generator, as on every engine."""
    return {op: evaluate(op, (), context) for op in block.body if op.defn.is_random}


def to_jax(program: Program, seed: int = 0) -> Callable[..., jax.Array | tuple[jax.Array, ...]]:
    """`program`, of PTIR, as a function of arrays that jit, grad and vmap take. It takes one array per input leaf, in order, and
    gives an array, or a tuple of arrays.

    Symbols are bound by the shapes of the arrays. Random ops give what `seed` gives on every engine. JAX reports no error when a
    function runs: an index out of range is moved into range, and an integer division by zero gives a number that XLA chooses.
    64-bit dtypes need JAX's `jax_enable_x64`. Raises UsageError if JAX is not installed, and for an op that JAX cannot express.
    """
    require_jax("to_jax")
    ready = without_calls(program)
    for op in unknown_ops(ready):
        raise UsageError(f"{op.defn.short} has no lowering in JAX{' inside a region' if op.defn.is_random else ''}")
    types = [t for p in ready.main.params for t in leaves(p.type) if isinstance(t, TensorType)]
    entries: dict[tuple[tuple[int, ...], ...], Program] = {}

    def function(*xs: jax.Array) -> jax.Array | tuple[jax.Array, ...]:
        if len(xs) != len(types):
            raise UsageError(f"@{ready.main.name} takes {len(types)} arrays, got {len(xs)}")
        shapes = tuple(tuple(x.shape) for x in xs)
        if shapes not in entries:
            entries[shapes] = bound(ready, types, shapes)
        static = entries[shapes]
        context = Context(seed=seed, streams=static.streams())
        tracing = Tracing(LOWERINGS, current().iterations, drawn(static.main, context))
        arguments = map(jax.numpy.asarray, xs)  # NumPy's arrays compute by other rules and lack `at`
        results = tracing.block(static.main, [nest(p.type, arguments) for p in static.main.params])
        outputs = [leaf for r in results for leaf in flatten(r)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    function.__name__ = function.__qualname__ = ready.main.name
    return function


def bound(program: Program, types: list[TensorType], shapes: tuple[tuple[int, ...], ...]) -> Program:
    """`program` with its symbols bound by the shapes of its inputs."""
    static, numbers = clone(program), dict[str, int](program.attrs.get("dims", {}))
    for i, (t, shape) in enumerate(zip(types, shapes, strict=True)):
        try:
            symbols.unify(t, t.with_shape(shape), numbers, f"input {i}")
        except Violation as violation:
            raise UsageError(violation.message) from None
    symbols.specialize(static, numbers)
    return static
