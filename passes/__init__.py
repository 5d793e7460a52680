"""Passes: one per file, `<dialect>/<name>.py`; those of every dialect are at the top. This module runs them.

A pass is a module with `run(program, context) -> None`. The first line of the docstring of `run` is its help. If it has
options, `OPTIONS` is a dict of their defaults, and `WRITES` names those that are files to write. An option has the type of its
default; None means a number without a default. `MEASURED` says that it usually changes outputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import cache, partial
from importlib import import_module
from itertools import chain, repeat
from time import perf_counter
from types import ModuleType

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.definers import undefined
from ptir_tools.core.diagnostics import Diagnostics, PluginFault, Rejected, Severity, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Attribute, Function, Value, exact, result_names
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import using
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TYPE_CHECKING, NoReturn, Protocol
from ptir_tools.core.verify import legalize, verify
from ptir_tools.dialects import DIALECTS, FORMATS
from ptir_tools.rewrite import additions
from ptir_tools.rewrite.context import Floats, Hook, PassContext, PassFailure, innermost_first
from ptir_tools.rewrite.pattern_set import FrozenPatternSet
from ptir_tools.rewrite.pipeline import Step, parse, point

if TYPE_CHECKING:
    import difflib
    import inspect
else:
    difflib = lazy("difflib")
    inspect = lazy("inspect")

__all__ = [
    "FIXPOINT",
    "Floats",
    "Hook",
    "Pass",
    "PassContext",
    "PassFailure",
    "default_pipeline",
    "help_of",
    "innermost_first",
    "lookup",
    "manual",
    "measured",
    "names",
    "options_of",
    "parse_pipeline",
    "register",
    "run_passes",
    "run_pipeline",
    "written",
]  # fmt: skip

_NUMBER = regex(r"-?[0-9]+")
_DECIMAL = regex(r"[0-9]*\.?[0-9]+(e-?[0-9]{1,3})?")
_DIGITS = 18
_ADDED_ROUNDS = 64

FIXPOINT = "fixpoint"
_FIXPOINT_OPTIONS = {"n": 4}
Run = Callable[[Program, PassContext], None]


class Registered(NamedTuple):
    """A pass of a plug-in, with the attributes of a pass module. With an empty `dialect`, programs of every dialect run it."""

    name: str
    dialect: str
    run: Run
    OPTIONS: Mapping[str, Attribute]


_REGISTERED: dict[tuple[str, str], Registered] = {}


def register(name: str, dialect: str, run: Run, options: Mapping[str, object] | None = None) -> None:
    """Register `run` as the pass `name` for programs of `dialect` (empty: of every one). The first line of its docstring is
    its help. `options` are names with defaults. Raises ValueError if the pass exists."""
    for known in [dialect] if dialect else DIALECTS:
        if name == FIXPOINT or (known in DIALECTS and name in names(known)):
            raise ValueError(f"there is a pass `{name}` for {known} already")
    _REGISTERED[dialect, name] = Registered(name, dialect, run, dict(options or {}))


@cache
def _modules(dialect: str) -> dict[str, str]:
    """The module of each pass that a program of `dialect` can run: its own, and those of every dialect."""
    modules: dict[str, str] = {}
    for package in filter(None, ("ptir_tools.passes", DIALECTS[dialect].passes)):
        names = sorted(_files(import_module(package).__path__))
        modules.update((name.replace("_", "-"), f"{package}.{name}") for name in names)
    return modules


def _files(folders: Iterable[str]) -> Iterator[str]:
    """The modules in the folders of a package; `pkgutil` would take longer than the passes."""
    for folder in folders:
        yield from (name.removesuffix(".py") for name in os.listdir(folder) if name.endswith(".py") and name[0] != "_")


def names(dialect: str) -> tuple[str, ...]:
    """The passes and named pipelines that a program of `dialect` can run, sorted."""
    added = [name for owner, name in _REGISTERED if owner in ("", dialect)]
    return tuple(sorted({*_modules(dialect), *DIALECTS[dialect].pipelines, *added}))


def lookup(name: str, dialect: str) -> ModuleType | Registered:
    """The module of the pass `name` for programs of `dialect`. Raises KeyError if it does not exist."""
    if (result := _REGISTERED.get((dialect, name)) or _REGISTERED.get(("", name))) is not None:
        return result
    return import_module(_modules(dialect)[name])


def help_of(name: str, dialect: str) -> str:
    """The first line of the docstring of a pass, or the help of a named pipeline."""
    if (named := DIALECTS[dialect].pipelines.get(name)) is not None:
        return named.help
    return (lookup(name, dialect).run.__doc__ or "").strip().partition("\n")[0]


def manual(name: str, dialect: str) -> str:
    """The docstrings of a pass and its module, or the passes of a named pipeline."""
    if (named := DIALECTS[dialect].pipelines.get(name)) is not None:
        return f"{named.help}\n\nRuns {named.steps}."
    result = lookup(name, dialect)
    about = None if isinstance(result, Registered) else result.__doc__
    return "\n\n".join(inspect.cleandoc(text) for text in (result.run.__doc__, about) if text)


def options_of(name: str, dialect: str) -> dict[str, Attribute]:
    """The options of the pass, the named pipeline, or `fixpoint`, with their defaults."""
    if (named := DIALECTS[dialect].pipelines.get(name)) is not None:
        return dict(named.options)
    return _FIXPOINT_OPTIONS if name == FIXPOINT else getattr(lookup(name, dialect), "OPTIONS", {})


def measured(pipeline: str, dialect: str) -> bool:
    """Whether a pass of `pipeline` usually changes outputs, so that users want to know how much."""

    def one(step: Step) -> bool:
        named = step.name in DIALECTS[dialect].pipelines or step.name == FIXPOINT
        return any(map(one, step.body or ())) or (not named and getattr(lookup(step.name, dialect), "MEASURED", False))

    return any(map(one, parse_pipeline(pipeline, dialect)))


def default_pipeline(program: Program) -> str:
    """What `ptir opt` runs on `program` without `-p`: the named pipeline that suits one of its ops, else that of its dialect."""
    present = {op.defn.name for block in program.blocks() for op in block.body}
    suited = (name for name, named in program.dialect.pipelines.items() if present.intersection(named.suits))
    return next(suited, program.dialect.pipeline)


def written(pipeline: str, dialect: str) -> str | None:
    """The first step of `pipeline` that writes a file, as text, or None. A pass lists such options in `WRITES`."""

    def one(step: Step) -> str | None:
        if step.name in DIALECTS[dialect].pipelines or step.name == FIXPOINT:
            return next(filter(None, map(one, step.body or ())), None)
        writes = any(step.options.get(name) for name in getattr(lookup(step.name, dialect), "WRITES", ()))
        return str(step) if writes else None

    return next(filter(None, map(one, parse_pipeline(pipeline, dialect))), None)


def parse_pipeline(text: str, dialect: str) -> tuple[Step, ...]:
    """The steps of `text`, every name and option checked. Raises UsageError that points into the text."""
    steps = parse(text)
    known = [*names(dialect), FIXPOINT]
    for step in steps:
        _check_step(step, text, dialect, known)
    return steps


def _check_step(step: Step, text: str, dialect: str, known: list[str]) -> None:
    if step.name not in known:
        raise point(text, step.at, _unknown(step.name, dialect, known), len(step.name))
    if (step.body is not None) != (step.name == FIXPOINT) or step.body == ():
        takes = "passes" if step.name == FIXPOINT else "no passes"
        raise point(text, step.at, f"`{step.name}` takes {takes} in parentheses", len(step.name))
    defaults = options_of(step.name, dialect)
    for name, value in step.options.items():
        at, value_at = step.options_at[name]
        if name not in defaults:
            hint = _nearest(name, defaults) or f" (it has: {', '.join(defaults) or 'none'})"
            raise point(text, at, f"pass `{step.name}` has no option `{name}`{hint}", len(name))
        try:
            _option(step, name, dialect)
        except UsageError as error:
            raise point(text, value_at, str(error), max(len(value), 1)) from None
    for inner in step.body or ():
        _check_step(inner, text, dialect, known)


def _unknown(name: str, dialect: str, known: list[str]) -> str:
    if others := [other for other in DIALECTS if name in names(other)]:
        return f"pass `{name}` is for {' and '.join(others)} programs, this one is {dialect}{_nearest(name, known)}"
    return f"unknown pass `{name}`{_nearest(name, known) or ' (`ptir opt --list-passes` lists them)'}"


def _nearest(name: str, known: Iterable[str]) -> str:
    similar = difflib.get_close_matches(name.replace("_", "-").lower(), known, n=1)
    return f"; did you mean `{similar[0]}`?" if similar else ""


def _options(step: Step, dialect: str) -> dict[str, Attribute]:
    """The options of `step`; those not given have their defaults."""
    return options_of(step.name, dialect) | {name: _option(step, name, dialect) for name in step.options}


def _option(step: Step, name: str, dialect: str) -> object:
    """The value of an option that the pass of `step` has, with the type of its default. Raises UsageError for a bad value."""
    default, text = options_of(step.name, dialect)[name], step.options[name]
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise UsageError(f"option `{name}` is true or false, not `{text}`")
        return text == "true"
    if isinstance(default, StrEnum):
        if text not in (known := list(type(default))):
            raise UsageError(f"option `{name}` is one of {', '.join(known)}, not `{text}`{_nearest(text, known)}")
        return type(default)(text)
    if isinstance(default, str):
        return text
    if isinstance(default, float):
        if not _DECIMAL.fullmatch(text):
            raise UsageError(f"option `{name}` needs a number, not `{text}`")
        return float(text)
    if not _NUMBER.fullmatch(text):
        raise UsageError(f"option `{name}` needs a number, not `{text}`")
    if len(text) > _DIGITS:
        raise UsageError(f"option `{name}` is too big: `{text}`")
    number = int(text)
    if number < 0 or (step.name == FIXPOINT and number < 1):
        raise UsageError(f"option `{name}` is too small: `{text}`")
    return number


def run_pipeline(program: Program, pipeline: str, context: PassContext | None = None) -> PassContext:
    """Run the passes of `pipeline` on `program`, which verifies. The context. Raises UsageError for an invalid pipeline,
    PassFailure if a pass breaks the program, Rejected if the program cannot be made explicit."""
    context = context or PassContext()
    steps = parse_pipeline(pipeline, program.dialect.name)
    with _running(program, context):
        _run_steps(program, steps, context)
    return context


class Pass(Protocol):
    """A pass as an object, for `PassManager` (`ptir_tools.rewriting`)."""

    @property
    def name(self) -> str:
        """The name in statistics and messages."""

    def run(self, program: Program, context: PassContext) -> None:
        """Transform `program`."""


def run_passes(program: Program, passes: Iterable[Pass], context: PassContext | None = None) -> PassContext:
    """Run passes in order, as `run_pipeline` does. Raises PassFailure if one breaks the program."""
    context = context or PassContext()
    with _running(program, context):
        for p in passes:
            _run_pass(program, Step(p.name, 0), {}, partial(_run_foreign, p.run), context)
    return context


@contextmanager
def _running(program: Program, context: PassContext) -> Iterator[None]:
    with collector_paused(), using(context.limits):
        legalize(program)
        context.kept.clear()
        context.undefined = undefined(program) if context.verify_each else None
        called = {f: result_names(f) for f in program.functions} if _names_results(program) else {}
        try:
            _write_streams(program, context)
            yield
            for function, names in called.items():
                _call_results(program, function, names)
        finally:
            context.kept.clear()


def _names_results(program: Program) -> bool:
    """Whether the results of `program` have names that must stay."""
    return program.dialect.names_results and (program.format not in FORMATS or FORMATS[program.format].named)


def _call_results(program: Program, function: Function, names: list[str]) -> None:
    """Give the results of `function` their earlier `names`. If the dialect cannot express result names, the values are
    renamed."""
    if len(names) != len(function.results) or names == result_names(function):
        return
    if program.dialect.renames_results:
        values = {v.name: v for v in (*function.params, *(v for op in function.ops() for v in op.results))}
        for x, name in zip(function.results, names, strict=True):
            if isinstance(x, Value) and x.name not in names:
                if (other := values.get(name)) is not None:
                    other.name = x.name
                    values[other.name] = other
                x.name = name
                values[name] = x
    else:
        function.attrs["output_names"] = names


def _write_streams(program: Program, context: PassContext) -> None:
    """Set `stream` of each random op. Without it the stream is the op's ordinal in the text, which passes change."""
    missing = {op: k for op, k in program.streams().items() if op.attr("stream") is None}
    for rw in context.rewriters(program) if missing else ():
        for block in rw.blocks():
            for op in rw.body(block):
                if op in missing:
                    rw.set_attribute(op, "stream", missing[op])


def _run_steps(program: Program, steps: tuple[Step, ...], context: PassContext) -> None:
    for step in steps:
        if (named := program.dialect.pipelines.get(step.name)) is not None:
            if named.prepare is not None:
                named.prepare(program, _options(step, program.dialect.name))
                if context.verify_each and not verify(program, faults := Diagnostics(program.source)):
                    raise Rejected(faults)
            _run_steps(program, parse(named.steps), context)
        elif step.body is None:
            _run_step(program, step, context)
        else:
            _run_fixpoint(program, step.body, _options(step, program.dialect.name)["n"], context)


def _run_fixpoint(program: Program, body: tuple[Step, ...], rounds: int, context: PassContext) -> None:
    """Repeat the steps of `body`, until all of them leave the program unchanged, at most `rounds` times."""
    quiet = 0
    for step in chain.from_iterable(repeat(body, rounds)):
        edits = context.edits
        _run_steps(program, (step,), context)
        quiet = quiet + 1 if context.edits == edits else 0
        if quiet == len(body) or context.steps_left == 0:
            return
    context.unfinished(f"`{FIXPOINT}` stopped: n is {rounds}, and `{','.join(map(str, body))}` still changes something")


def _run_step(program: Program, step: Step, context: PassContext) -> None:
    dialect = program.dialect.name
    result = lookup(step.name, dialect)
    run = partial(_run_foreign, result.run) if isinstance(result, Registered) else result.run
    first = program.dialect.pipeline.partition(",")[0]
    added = additions.added(dialect) if step.name == first else None
    chosen = run if added is None else partial(_with_added, run, added)
    _run_pass(program, step, _options(step, dialect), chosen, context)


def _with_added(run: Run, patterns: FrozenPatternSet, program: Program, context: PassContext) -> None:
    """Canonicalize, then apply the patterns of plug-ins; repeat until they change nothing."""
    for _ in range(_ADDED_ROUNDS):
        run(program, context)
        faults = Diagnostics(program.source)
        if context.verify_each and not verify(program, faults):
            raise PassFailure(context.running, faults)
        was_right = context.verify_each or verify(program, Diagnostics(program.source))
        changed, ran = 0, set[str]()
        for rw in context.rewriters(program):
            with additions.blamed(patterns):
                stats = context.drive(rw, patterns, context.greedy())
            changed += stats.rewrites
            ran.update(stats.patterns)
            context.tally(stats)
        if was_right and not verify(program, faults):
            used = [p for p in patterns.patterns if p.name in ran] or patterns.patterns
            rules = ", ".join(f"`{p.name}`" for p in used)
            message = f"the rules of plug-ins that ran ({rules}) break the program {PassFailure(context.running, faults)}"
            raise additions.fault(used[0], message)
        if not changed or context.steps_left == 0:
            return
    used = [p for p in patterns.patterns if p.name in ran]
    message = f"the rules of plug-ins that ran ({', '.join(f'`{p.name}`' for p in used)}) and `{context.running}` undo each other"
    raise additions.fault(used[0], f"{message}: stopped after {_ADDED_ROUNDS} rounds")


def _keeps_definers(program: Program, context: PassContext, faults: Diagnostics) -> bool:
    """Report each symbol that had a definer before the pass and has none now. True if nothing is reported."""
    before, context.undefined = context.undefined, undefined(program)
    for function, symbol in sorted(context.undefined - before if before is not None else ()):
        message = f"nothing in @{function} defines ?{symbol} any more: the op that did is gone"
        faults.error("UnboundSymbol", message, getattr(program.function(function), "loc", 0))
    return not faults.errors


def _raise_fault(step: Step, program: Program, faults: Diagnostics) -> NoReturn:
    """Raise the error that a pass broke the program: PluginFault for a pass of a plug-in, else PassFailure."""
    owner, failure = lookup(step.name, program.dialect.name) if step.name in names(program.dialect.name) else None, PassFailure
    if isinstance(owner, Registered):
        raise PluginFault(owner.run, f"the pass breaks the program {failure(step.name, faults)}")
    raise failure(step.name, faults)


def _run_foreign(run: Run, program: Program, context: PassContext) -> None:
    """Run a pass that may also edit the program without a rewriter: this counts as an edit, and no rewriter is kept."""
    context.kept.clear()
    before, edits = _state(program), context.edits
    run(program, context)
    context.kept.clear()
    if context.edits == edits and _state(program) != before:
        context.edits += 1


def _state(program: Program) -> list[object]:
    """Everything that a pass may change, for a comparison."""
    state: list[object] = [dict(program.attrs), program.entry]
    for block in program.blocks():
        values = block.values()
        state += [block.name, [(v, v.name, v.type) for v in values], list(block.results), list(block.result_types)]
        state += [repr(getattr(block, "attrs", None)), list(getattr(block, "annotations", ()))]
        state += [(op, op.defn, exact(op.attrs), tuple(op.operands), tuple(op.regions)) for op in block.body]
    return state


def _run_pass(program: Program, step: Step, options: dict[str, object], run: Run, context: PassContext) -> None:
    if context.steps_left == 0:
        return
    context.running, context.options = step.name, options
    context.unnamed.clear()
    for hook in context.hooks:
        hook.before(step, program)
    watched = context.log is not None or context.step_limit is not None or any(hook.reads_changed for hook in context.hooks)
    state = _state(program) if watched else []
    edits, steps, start = context.edits, context.steps, perf_counter()
    run(program, context)
    context.timings.append((step.name, perf_counter() - start))
    if watched and context.edits == edits and _state(program) != state:  # edited without a rewriter
        context.edits += 1
    if context.edits != edits and context.steps == steps:
        context.took(1)
        context.record({"event": "changed", "pattern": None, "root": None, "before": None, "after": None, "loc": 0})
    if context.verify_each:
        faults, start = Diagnostics(program.source), perf_counter()
        if not (verify(program, faults) and _keeps_definers(program, context, faults)):
            if all(d.code in program.dialect.late_errors for d in faults if d.severity is Severity.ERROR):
                raise Rejected(faults)  # the program was invalid before the pass
            _raise_fault(step, program, faults)
        context.verifying += perf_counter() - start
    for hook in context.hooks:
        hook.after(step, program, context.edits != edits)
