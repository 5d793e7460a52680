"""The options that commands share, each declared once; what their values are; the decorator that makes a function a command.

What a shell proposes for a value follows from the metavar of its option.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from ptir_tools.cli.report import meanings, reporter_of
from ptir_tools.cli.session import Session
from ptir_tools.core.dialect import Option, Options
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS, LimitExceeded, Limits
from ptir_tools.core.records import fields, replace
from ptir_tools.dialects import DIALECTS, FORMATS, load_dialect
from ptir_tools.dialects.ptir import WEIGHTS

if TYPE_CHECKING:
    from click import shell_completion

    from ptir_tools import passes
    from ptir_tools.cli import explain
    from ptir_tools.dialects.pto import targets

    Text = click.ParamType[str]
    Items = list[shell_completion.CompletionItem]
else:
    explain = lazy("ptir_tools.cli.explain")
    passes = lazy("ptir_tools.passes")
    shell_completion = lazy("click.shell_completion")
    targets = lazy("ptir_tools.dialects.pto.targets")
    Text = click.ParamType

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_ARRAYS = re.compile(r"@?(.+\.(?:npz|safetensors))(?::.*)?", re.DOTALL)
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text: str) -> int:
    """A count or a number of bytes: `4096`, `64K`, `2GiB`."""
    found = re.fullmatch(r"([0-9_]{1,25})([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise click.BadParameter(f"{text!r} is no size: a number, or one with K, M, G or T")
    return int(found[1]) * _SCALE[found[2].lower()]


def binding(text: str) -> tuple[str, int]:
    """`NAME=INT`, a symbol's value."""
    name, _, number = text.partition("=")
    if not name or not re.fullmatch(r"[0-9]{1,18}", number):
        raise click.BadParameter(f"{text!r} is not NAME=INT with an integer that is not negative")
    return name.removeprefix("?"), int(number)


class Finite(click.FloatRange):
    """A float in a range; NaN and the infinities are none."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises click.BadParameter."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


def titled(title: str, *options: Decorator) -> tuple[Decorator, ...]:
    """The options, for --help to list under `title`."""

    def with_title(option: Decorator, fn: Callable[..., Any]) -> Callable[..., Any]:
        decorated: Any = option(fn)
        decorated.__click_params__[-1].title = title
        return cast(Callable[..., Any], decorated)

    return tuple(functools.partial(with_title, option) for option in options)


def _set_form(ctx: click.Context, _: click.Parameter, form: str) -> str:
    reporter_of(ctx).form = form
    return form


_COMMON = "Common options"
REPORTING = titled(
    _COMMON,
    click.option(
        "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Color what is for people (auto)."
    ),
    click.option(
        "--diagnostics",
        "form",
        type=click.Choice(["text", "short", "json", "sarif", "github"]),
        default="text",
        is_eager=True,  # before the others, so that what is wrong with them is told in this form, too
        callback=_set_form,
        help="How diagnostics are written (text).",
    ),
    click.option(
        "--max-errors", type=click.IntRange(1), default=20, metavar="N", help="Errors shown per file, and notes of a code (20)."
    ),
    click.option("--load", metavar="FILE.py", multiple=True, help="Load a plug-in: passes, rules, kernels, IRs."),
    click.option("-q", "--quiet", is_flag=True, help="Show errors only."),
    click.option("-v", "--verbose", is_flag=True, help="Show notes, too."),
)


class Parsed(Text):
    """A value that `parse` reads, which raises ValueError."""

    name = "text"

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What `parse` reads. Raises click.BadParameter."""
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _dest(option: Option[Any]) -> str:
    """The name of its parameter, which no flag of a command has."""
    return f"option_{option.name}"


def _flag(option: Option[Any]) -> Decorator:
    """The option of the command line that an option of a dialect declares."""
    kind = click.Choice(option.choices) if option.choices else Parsed(option.parse)
    default = None if option.many else option.default
    return click.option(
        option.flag,
        _dest(option),
        type=kind,
        default=default,
        metavar=option.metavar or None,
        multiple=option.many,
        help=option.help,
    )


def _flagged() -> list[Option[Any]]:
    """The options of all dialects that commands take, in the order of their flags."""
    return sorted((o for d in DIALECTS.values() for o in d.options if o.flag), key=lambda o: o.flag)


def reading() -> tuple[Decorator, ...]:
    """What every command that reads programs takes, options of dialects included: those of plug-ins are known by now."""
    return titled(
        _COMMON,
        click.option("--bind", "bindings", type=binding, metavar="NAME=INT", multiple=True, help="Replace a symbol by a number."),
        *map(_flag, _flagged()),
        click.option("--strict", is_flag=True, help="Notes and warnings are errors."),
    )


_LIMITS = tuple(f"max_{f.name}" for f in fields(Limits))
LIMITING = tuple(click.option("--" + name.replace("_", "-"), name, type=size, hidden=True) for name in _LIMITS)


def from_option(*more: str) -> Decorator:
    """`--from`: every format that can be read, and what else a command reads."""
    known = [*(e.name for e in FORMATS.values() if e.readable), *more]
    help = "The input's format, instead of recognizing it by content."
    (option,) = titled(_COMMON, click.option("--from", "form_in", type=click.Choice(known), help=help))
    return option


output_option = click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.")
output_tree_option = click.option(
    "-o", "--output", metavar="FILE", help="Write there instead of to standard output; for several files, to this folder."
)
file_argument = click.argument("file", default="", metavar="[FILE]")
files_argument = click.argument("files", nargs=-1, metavar="[FILE]...")
split_option = click.option("--split-input", is_flag=True, help="Lines `// -----` (`# -----`) divide the file into programs.")
weights_option = click.option(
    "--weights", metavar="FILE", help="Text PTIR: keep constants of more than 16 elements in FILE (.safetensors or .npz)."
)
elide_option = click.option(
    "--elide-constants-larger", type=click.IntRange(0), metavar="N", help="Print constants of more than N elements as dense<?>."
)
strict_fp_option = click.option(
    "--strict-fp", is_flag=True, help="Every rounding stays as the program writes it: in rewrites and in engines."
)
float_options = (
    strict_fp_option,
    click.option("--fast-math", is_flag=True, help="Rewrites may assume finite numbers and reassociate."),
)
check_runs_option = click.option(
    "--check-runs", type=click.IntRange(1), default=3, metavar="N", help="On how many random inputs programs are compared (3)."
)
check_options = (
    click.option("--check", is_flag=True, help="Run before and after on random inputs; differing outputs are an error."),
    check_runs_option,
)
target_option = click.option("--target", metavar="TARGET", help="PTO: the target, a3 or a5.")
json_option = click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
in_place_option = click.option("--in-place", "-i", is_flag=True, help="Rewrite the files that change.")
jobs_option = click.option("-j", "--jobs", type=click.IntRange(1), default=1, metavar="N", help="Work on N files at once (1).")
diff_option = click.option("--diff", is_flag=True, help="Print what would change as a unified diff.")
judge_timeout_option = click.option(
    "--timeout", type=Finite(0, min_open=True), metavar="S", help="Give up on CMD after S seconds: it fails."
)


class Words(Text):
    """Text with known words in it. What stands before the last `,` or `(` of it stays."""

    name = "text"

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self.known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        kept = re.sub(r"[^,(]*\Z", "", incomplete)
        proposed = (kept + word for word in sorted(set(self.known())))
        return [shell_completion.CompletionItem(word) for word in proposed if word.startswith(incomplete)]


class Paths(Text):
    """The path of a file or of a folder, `kind`."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        return [shell_completion.CompletionItem(incomplete, type=self.kind)]


def _ops() -> list[str]:
    return [name for dialect in DIALECTS for op in load_dialect(dialect).ops.values() for name in (op.short, op.name)]


def _passes() -> list[str]:
    return [name for dialect in DIALECTS for name in passes.names(dialect)]


_FILE, _PASSES = Paths("file"), Words(_passes)
_TYPES: dict[str, Text] = {
    "FILE": _FILE,
    "A": _FILE,
    "B": _FILE,
    "PLAN.json": _FILE,
    "DIR": Paths("dir"),
    "PASS": _PASSES,
    "PIPELINE": _PASSES,
    "FORMAT": Words(lambda: FORMATS),
    "CODE": Words(lambda: [code.code for _, code in explain.all_codes()]),
    "OP": Words(_ops),
    "TARGET": Words(lambda: targets.TARGETS),
}


def proposing(command: click.Command) -> click.Command:
    """`command`, its parameters of plain text completed by what their metavars say."""
    for p in command.params:
        if p.type is click.STRING and p.metavar:
            p.type = _TYPES.get(p.metavar.strip("[]."), p.type)
    return command


class Command(click.Command):
    """A subcommand whose help lists its options by title, the shared ones after its own, then the limits and the exit codes."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles: dict[str, list[tuple[str, str]]] = {"Options": []}
        for p in self.get_params(ctx):
            if isinstance(p, click.Option) and (record := p.get_help_record(ctx)):
                titles.setdefault(getattr(p, "title", "Options"), []).append(record)
        for title, rows in titles.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if limits := [f"{p.opts[0]} {_default(p.name)}" for p in self.params if p.name in _LIMITS]:
            with formatter.section("Limits, with their values (a number, with K, M, G or T)"):
                unbroken = " ".join(limit.replace(" ", "\xa0") for limit in limits)
                wrapped = textwrap.wrap(unbroken, formatter.width - 4, break_on_hyphens=False)
                formatter.write("".join(f"  {line}\n" for line in wrapped).replace("\xa0", " "))
        with formatter.section("Exit codes"):
            formatter.write_dl(meanings())


def _default(limit: str) -> str:
    """The value of a limit that nobody gives: `256M`."""
    value = getattr(LIMITS, limit.removeprefix("max_"))
    if value is None:
        return "(half of the machine's)"
    letter, scale = next((k, n) for k, n in reversed(_SCALE.items()) if value % n == 0)
    return f"{value // scale}{letter.upper()}"


def subcommand(
    *own: Decorator, reads: bool = True, also_from: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make `fn(session, **parameters)` a command. Its docstring is the help; `own` are its options and arguments; `also_from`
    are formats that `--from` takes beside those of programs."""

    def decorate(fn: Callable[..., Any]) -> click.Command:
        @functools.wraps(fn)
        def call(**parameters: Any) -> None:
            ctx = click.get_current_context()
            session = _session(ctx, parameters)
            try:
                fn(session, **parameters)
            except click.exceptions.Exit:
                session.reporter.finish()
                raise
            except RecursionError:
                if session.options.limits.nesting <= LIMITS.nesting:
                    raise  # a fault of ours: what is allowed by default is read
                raise LimitExceeded(
                    "the program is nested deeper than Python can follow, though --max-nesting allows it"
                ) from None
            session.reporter.finish()

        shared: tuple[Decorator, ...] = (*REPORTING, from_option(*also_from), *reading(), *LIMITING) if reads else REPORTING
        decorated: Any = call
        for option in reversed((*own, *shared)):
            decorated = option(decorated)
        name = fn.__module__.rpartition(".")[2]
        return proposing(click.command(name, cls=Command, help=inspect.getdoc(fn))(decorated))

    return decorate


def _files(given: Iterable[object]) -> Iterator[str]:
    """The files of arrays that a command line names: payloads may be read from them wherever they are."""
    for x in given:
        if isinstance(x, (tuple, list)):
            yield from _files(x)
        elif isinstance(x, str) and (found := _ARRAYS.fullmatch(x)):
            yield found[1]


def _session(ctx: click.Context, parameters: dict[str, Any]) -> Session:
    """Take the shared options out of `parameters`."""
    reporter = reporter_of(ctx)
    for name in ("color", "form", "max_errors", "quiet", "verbose"):
        setattr(reporter, name, parameters.pop(name))
    parameters.pop("load")  # done before the command was imported
    if "form_in" not in parameters:
        return Session(ctx, reporter)
    reporter.strict = parameters.pop("strict")
    given = {name.removeprefix("max_"): value for name in _LIMITS if (value := parameters.pop(name)) is not None}
    taken = {o: parameters.pop(_dest(o)) for o in _flagged() if _dest(o) in parameters}
    chosen = {o.name: type(o.default)(given) if o.many else given for o, given in taken.items()}
    chosen[WEIGHTS.name] += tuple(_files(parameters.values()))
    options = Options(replace(LIMITS, **given), **chosen)
    return Session(ctx, reporter, options, parameters.pop("form_in"), dict(parameters.pop("bindings")))
