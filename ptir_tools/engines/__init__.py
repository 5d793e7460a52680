"""Execution. `run` takes a verified program of any dialect and arrays by name, and returns arrays by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ptir_tools.core import symbols
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Executable, Program, clone
from ptir_tools.core.evaluate import Context
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded, require_memory, using
from ptir_tools.core.types import flatten, nest
from ptir_tools.core.verify import legalized
from ptir_tools.core.violations import Violation
from ptir_tools.engines import signature as ports
from ptir_tools.engines.choose import prepare
from ptir_tools.engines.options import ENGINES, RunOptions
from ptir_tools.engines.trace import traced

__all__ = ["ENGINES", "RunOptions", "require_memory", "run", "specialized"]


def run(
    program: Program,
    inputs: Mapping[str, Array] | Sequence[Array],
    options: RunOptions | None = None,
    diagnostics: Diagnostics | None = None,
) -> dict[str, Array]:
    """The outputs of `program` on `inputs`, by name and in order. The program is verified and is not changed. Raises UsageError
    for inputs that do not fit and for an engine that cannot run it. Raises LimitExceeded before allocation when memory would not
    suffice, or later for iterations and time. Raises Rejected for errors of the program; its diagnostics have codes and
    locations, and are in `diagnostics`, too. Errors that do not end the run (a race in PTO) are in `diagnostics` next to the
    outputs; without it they are Rejected as well.
    """
    options = options or RunOptions()
    own, diagnostics = diagnostics is None, Diagnostics(program.source) if diagnostics is None else diagnostics
    given = ports.order(ports.signature(program, options.function), inputs)
    with using(options.limits), rejecting(diagnostics, Context()):
        static = specialized(program, given, options)
    with using(options.limits), traced(static, given, options) as (watched, execution):
        with rejecting(diagnostics, Context()):
            executable = prepare(static, watched, diagnostics)
        require_memory(executable.memory)
        outputs = execute(executable, static, given, options, diagnostics)
        if execution is not None:
            execution.outputs = outputs
    if own:
        diagnostics.raise_if_errors()
    return outputs


def execute(
    executable: Executable, static: Program, given: Sequence[Array], options: RunOptions, diagnostics: Diagnostics
) -> dict[str, Array]:
    """One run of a prepared program on arrays that fit its parameters."""
    context = Context(seed=options.seed, timeout=options.timeout, streams=static.streams())
    context.observe, context.timer = options.observe, options.timer
    context.diagnostics = diagnostics
    context.start()
    leaves = iter(given)
    arguments = [nest(p.type, leaves) for p in static.main.params]
    with np.errstate(all="ignore"), rejecting(diagnostics, context, static.dialect.codes.run_time):
        results = executable(arguments, context)
    names = [p.name for p in ports.results(static)]
    return dict(zip(names, map(np.asarray, flatten(results)), strict=True))


def specialized(program: Program, given: Sequence[Array], options: RunOptions) -> Program:
    """`program` made explicit, with the chosen entry, its symbols bound from bindings, the program's own `dims` and the inputs'
    shapes.

    Raises Rejected as `core.verify.legalize` does, Violation as `core.symbols.specialize` does.
    """
    program = legalized(program)
    main = ports.entry(program, options.function)
    if not symbols.symbols(program):
        return program if main is program.main else entered(clone(program), main.name)
    static = entered(clone(program), main.name)
    numbers = {**static.attrs.get("dims", {}), **options.bindings}
    symbols.bind(static, numbers)
    ports.bind_shapes(ports.signature(static), [a.shape for a in given], numbers, static.dialect.codes.extent)
    symbols.specialize(static, numbers)
    return static


def entered(program: Program, entry: str) -> Program:
    """`program`, with its entry changed in place."""
    program.entry = entry
    return program


@contextmanager
def rejecting(diagnostics: Diagnostics, context: Context, codes: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn a Violation into a diagnostic at the op that raised it, and that into Rejected. `codes` renames its code. A
    LimitExceeded gets the location of the op."""
    try:
        yield
    except Violation as violation:
        violation.code = (codes or {}).get(violation.code, violation.code)
        op = context.failed
        diagnostics.violation(violation, op.loc if op else None, op)
        raise Rejected(diagnostics.sorted()) from violation
    except LimitExceeded as limit:
        if limit.flag != "--timeout":  # the op that was running is not the cause then
            limit.loc = limit.loc or (context.failed.loc if context.failed else 0)
        raise
