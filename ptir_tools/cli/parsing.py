"""Command lines as click parses them: commands and parameters from their declarations. The metavar of an option decides how a
shell completes its value."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

import click
from click.core import ParameterSource

from ptir_tools import __version__
from ptir_tools.cli.commands import COMMANDS, GROUPS, load_plugins, subcommand_of
from ptir_tools.cli.options import LIMIT_NAMES, SCALE, Kind, Parameter, Subcommand
from ptir_tools.cli.report import Leave, Reporter, meanings, usage
from ptir_tools.cli.session import Given
from ptir_tools.core.diagnostics import unknown_name
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import LIMITS
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.dialects import DIALECTS, FORMATS, load_dialect

if TYPE_CHECKING:
    from click import shell_completion

    from ptir_tools import passes
    from ptir_tools.tools import explanations, versions

    Text = click.ParamType[str]
    Items = list[shell_completion.CompletionItem]
else:
    explanations = lazy("ptir_tools.tools.explanations")
    versions = lazy("ptir_tools.tools.versions")
    passes = lazy("ptir_tools.passes")
    shell_completion = lazy("click.shell_completion")
    Text = click.ParamType

_SENTENCE = regex(r"[.:;](?:\s|$)")  # ends the first clause of a help


class Finite(click.FloatRange):
    """A finite float in a range."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises click.BadParameter."""
        result: float = super().convert(value, param, ctx)
        if not math.isfinite(result):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return result


class Integers(click.IntRange):
    """An integer in a range."""

    name = "integer"


class Words(Text):
    """Text that contains known words; the part before its last `,` or `(` is kept."""

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


def _targets() -> list[str]:
    return [name for dialect in DIALECTS.values() for name in dialect.targets()]


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
    "CODE": Words(lambda: [code.code for _, code in explanations.all_codes()]),
    "OP": Words(_ops),
    "TARGET": Words(_targets),
}


def _known(param: click.Parameter) -> Text | None:
    """The completion for a parameter with this metavar, or None."""
    return _TYPES.get((param.metavar or "").strip("[]."))


class Parsed(Text):
    """A value that `parse` reads, with ValueError for an invalid text. The metavar decides its completion."""

    name = "text"

    def __init__(self, parse: Callable[[str], object]) -> None:
        self.parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; a default is one already. Raises click.BadParameter."""
        try:
            return self.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        known = _known(param)
        return [] if known is None else known.shell_complete(ctx, param, incomplete)


_KINDS: dict[str, Callable[..., click.ParamType[object]]] = {
    "choice": click.Choice,
    "int_range": Integers,
    "finite": Finite,
    "parsed": Parsed,
}


class Command(click.Command):
    """A subcommand whose help lists its options by title, the shared ones after its own, then the limits and the exit codes. That
    of `-h` lists its own options only."""

    titles: dict[str, str]
    brief = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self.brief = "-h" in args and "--help" not in args
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        titles: dict[str, list[tuple[str, str]]] = {"Options": []}
        for p in self.get_params(ctx):
            if isinstance(p, click.Option) and (record := p.get_help_record(ctx)):
                titles.setdefault(self.titles.get(p.name or "", "Options"), []).append(record)
        if self.brief:
            more = sum(map(len, titles.values())) - len(titles["Options"])
            titles = {"Options": [*titles["Options"], ("", f"`{ctx.command_path} --help` shows {more} more, and exit codes.")]}
        for title, rows in titles.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if self.brief:
            return
        if limits := [f"{p.opts[0]} {_default(p.name)}" for p in self.params if p.name in LIMIT_NAMES]:
            with formatter.section("Limits, with their values (a number, with K, M, G or T)"):
                unbroken = " ".join(limit.replace(" ", "\xa0") for limit in limits)
                wrapped = textwrap.wrap(unbroken, formatter.width - 4, break_on_hyphens=False)
                formatter.write("".join(f"  {line}\n" for line in wrapped).replace("\xa0", " "))
        with formatter.section("Exit codes"):
            formatter.write_dl(meanings())


def _default(limit: str) -> str:
    """The default of a limit: `256M`."""
    value = getattr(LIMITS, limit.removeprefix("max_"))
    if value is None:
        return "(half of the machine's)"
    letter, scale = next((k, n) for k, n in reversed(SCALE.items()) if value % n == 0)
    return f"{value // scale}{letter.upper()}"


def _parameter(declared: Parameter) -> click.Parameter:
    """The parameter of click. Plain text is completed by its metavar."""
    settings = dict(declared.settings)
    if isinstance(kind := settings.get("type"), Kind):
        settings["type"] = _KINDS[kind.name](*kind.arguments, **kind.settings)
    if callback := settings.get("callback"):
        settings["callback"] = _calling(callback)
    result = (click.Argument if declared.is_argument else click.Option)(declared.words, **settings)
    if result.type is click.STRING:
        result.type = _known(result) or result.type
    return result


def _calling(callback: Callable[..., object]) -> Callable[..., object]:
    """The callback, with click.BadParameter for ValueError."""

    def call(ctx: click.Context, param: click.Parameter, value: object) -> object:
        try:
            return callback(ctx, param, value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return call


def command(declared: Subcommand) -> click.Command:
    """The command of click."""

    def call(**parameters: object) -> None:
        ctx = click.get_current_context()
        on_line = [p for p in ctx.command.params if ctx.get_parameter_source(p.name or "") is ParameterSource.COMMANDLINE]
        given = [Given(p.name or "", p.opts[0] if isinstance(p, click.Option) else "", parameters[p.name or ""]) for p in on_line]
        declared.run(ctx.find_root().obj, parameters, given)

    params = [_parameter(p) for p in declared.parameters]
    result = Command(declared.name, callback=call, params=params, help=inspect.getdoc(declared.function))
    result.titles = {p.name: p.title for p in declared.parameters}
    return result


def summary(command: click.Command) -> str:
    """The first clause of its help; empty with python -OO, which drops docstrings."""
    return _SENTENCE.split(command.help or "")[0]


class Commands(click.Group):
    """The subcommands. A module is imported when its command is called or its help is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return command(subcommand_of(cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary(c)) for name, c in commands if c])
        with formatter.section("Exit codes"):
            formatter.write_dl(meanings())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"no command\n\n{self.get_help(ctx)}")
        if {*args} & {"-V", "--version"} and {*args} & {"-v", "--verbose"}:
            click.echo("".join(f"{line}\n" for line in versions.lines()), nl=False)
            ctx.exit()
        if args[:1] == ["help"]:  # as `git help COMMAND`
            args = [*args[1:2], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown_name("command", args[0], COMMANDS)
        load_plugins(args[1:])
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__,
    "-V",
    "--version",
    prog_name="ptir",
    message="%(prog)s %(version)s",
    help="Show the version; with -v also the engines and the installed extras.",
)
def group() -> None:
    """Verify, optimize, translate, plan and run tensor programs in PTIR, PTO IR, MIND Core IR and Tiny IR.

    A program is read from a file or from standard input, its format recognized by content; results go to standard
    output, everything else to standard error. `ptir COMMAND --help` lists a command's options with examples.
    """


def invoke(args: Sequence[str], reporter: Reporter) -> None:
    """Run a command line. Raises Leave with an exit code, UsageError for a wrong command line, and any error of the command."""
    try:
        with group.make_context("ptir", list(args), obj=reporter) as root:
            group.invoke(root)
    except click.exceptions.Exit as error:
        raise Leave(error.exit_code) from None
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        ctx = getattr(error, "ctx", None)
        raise usage(error.format_message(), ctx.info_name if ctx and ctx.parent else "") from None
