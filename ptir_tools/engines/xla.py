"""XLA through JAX, on the CPU or on a mesh of devices: the program as one compiled function. Needs the extra `xla`.

A compiled function cannot report errors. It returns whether there was one; then the reference engine runs the program and reports
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ptir_tools.bridges.xla.devices import Devices
from ptir_tools.bridges.xla.function import drawn, require_jax, unknown_ops, without_calls
from ptir_tools.bridges.xla.table import LOWERINGS
from ptir_tools.bridges.xla.tracing import Tracing
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.evaluate import Context, Data
from ptir_tools.core.ir import Function, Op, operand_type
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import flatten, nest
from ptir_tools.engines import reference
from ptir_tools.engines.options import RunOptions
from ptir_tools.plan.mesh import Placing

if TYPE_CHECKING:
    import jax
else:
    jax = lazy("jax")

Compiled = Callable[..., tuple[Sequence[object], object]]  # returns the leaves of the results, and whether the run failed

# Options of XLA: every op is rounded to its dtype, NaNs are respected, sums are not reordered.
COMPILER: dict[str, bool | str] = {"xla_allow_excess_precision": False, "xla_cpu_enable_fast_min_max": False}


@contextmanager
def wide(device: object) -> Iterator[None]:
    """JAX with 64-bit dtypes, on `device` by default."""
    with jax.enable_x64(True), jax.default_device(device):
        yield


class Executable:
    """A static PTIR program, ready to run by XLA, on one CPU or on the devices of a mesh. Raises UsageError if JAX is not
    installed, for an op that it cannot run, and for a mesh that does not fit the devices."""

    def __init__(self, program: Program, function: Function, options: RunOptions, places: Placing | None = None) -> None:
        require_jax("engine `xla`")
        self.program = without_calls(program)
        for op in unknown_ops(self.program):
            where = " inside a region" if op.defn.is_random else ""
            raise UsageError(f"engine `xla` cannot run {op.defn.short}{where}; use `numpy`")
        self.function = self.program.main
        self.options = options
        self.slow = reference.Executable(program, function, options)
        self.compiled: Compiled | None = None
        self.devices = None
        if options.sharding is not None and places is not None:
            self.devices = Devices(options.sharding.mesh, places, options.hosts)

    @property
    def memory(self) -> int:
        """An upper estimate of the bytes that a run takes: that of the reference."""
        return self.slow.memory

    def __call__(self, arguments: Sequence[Data], context: Context) -> tuple[Data, ...]:
        """The results, one per result of the function, fresh arrays. Raises Violation."""
        with wide(jax.local_devices()[0] if self.devices else jax.devices("cpu")[0]):
            output = drawn(self.function, context)
            given = [list(flatten(tuple(arguments))), list(output.values())]
            if self.devices is not None:
                output |= self.devices.constants(self.function)
                given = [self.devices.put(given[0], self.devices.places.inputs), self.devices.cut(output)]
            if context.observe is not None:
                result, failed = self.traced(list(output), context, *given)
            else:
                if self.compiled is None:
                    self.compiled = self.compile(list(output), context, given)
                result, failed = self.compiled(*given)
            if not bool(failed):
                leaves = iter([np.array(x) for x in result])
                return tuple(nest(operand_type(x), leaves) for x in self.function.results)
        return self.slow(arguments, context)

    def compile(self, results: Sequence[Op], context: Context, given: Sequence[object]) -> Compiled:
        """The function of arrays like `given`, compiled."""
        out = {} if self.devices is None else {"out_shardings": (self.devices.out(), self.devices.named(None))}
        traced = jax.jit(lambda xs, ds: self.traced(results, context, xs, ds), **out)
        compiled: Compiled = traced.lower(*given).compile(compiler_options=COMPILER)
        return compiled

    def traced(
        self, ops: Sequence[Op], context: Context, xs: Sequence[object], ds: Sequence[object]
    ) -> tuple[Sequence[object], object]:
        """The leaves of the results, and whether the run failed."""
        tracing = Tracing(LOWERINGS, context.limits.iterations, dict(zip(ops, ds, strict=True)), observe=context.observe)
        tracing.keep = self.devices.keep if self.devices is not None else None
        given = iter(xs)
        results = tracing.block(self.function, [nest(p.type, given) for p in self.function.params])
        return list(flatten(results)), tracing.failed()
