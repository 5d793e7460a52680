"""The options that commands share, and the decorator that makes a function a command with them."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import click

from ptir_tools.cli.completing import proposing
from ptir_tools.cli.exits import meanings
from ptir_tools.cli.report import reporter_of
from ptir_tools.cli.session import Session
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LIMITS, LimitExceeded, Limits
from ptir_tools.dialects import FORMATS

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


def assignment(text: str) -> tuple[str, str]:
    """`NAME=TEXT`."""
    name, equals, value = text.partition("=")
    if not name.strip() or not equals or not value:
        raise click.BadParameter(f"{text!r} is not NAME=TEXT")
    return name.strip(), value


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
        type=click.Choice(["text", "short", "json", "sarif"]),
        default="text",
        is_eager=True,  # before the others, so that what is wrong with them is told in this form, too
        callback=_set_form,
        help="How diagnostics are written (text).",
    ),
    click.option(
        "--max-errors", type=click.IntRange(1), default=20, metavar="N", help="Errors shown per file, and notes of a code (20)."
    ),
    click.option("-q", "--quiet", is_flag=True, help="Show errors only."),
    click.option("-v", "--verbose", is_flag=True, help="Show notes, too."),
)
READING = titled(
    _COMMON,
    click.option("--bind", "bindings", type=binding, metavar="NAME=INT", multiple=True, help="Replace a symbol by a number."),
    click.option("--profile", type=click.Choice(["strict", "seed"]), default="seed", help="Tiny: the rules that apply (seed)."),
    click.option(
        "--weights-root", "weights_roots", metavar="DIR", multiple=True, help="Text PTIR: dense<@FILE:KEY> may be below DIR, too."
    ),
    click.option("--strict", is_flag=True, help="Notes and warnings are errors."),
)
_LIMITS = tuple(f"max_{f.name}" for f in fields(Limits))
LIMITING = tuple(click.option("--" + name.replace("_", "-"), name, type=size, hidden=True) for name in _LIMITS)


def from_option(*more: str) -> Decorator:
    """`--from`: every format that can be read, and what else a command reads."""
    known = [*(e.name for e in FORMATS.values() if e.readable), *more]
    help = "The input's format, instead of telling it by content."
    (option,) = titled(_COMMON, click.option("--from", "form_in", type=click.Choice(known), help=help))
    return option


output_option = click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.")
file_argument = click.argument("file", default="", metavar="[FILE]")
files_argument = click.argument("files", nargs=-1, metavar="[FILE]...")


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

        shared: tuple[Decorator, ...] = (*REPORTING, from_option(*also_from), *READING, *LIMITING) if reads else REPORTING
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
    if "form_in" not in parameters:
        return Session(ctx, reporter)
    reporter.strict = parameters.pop("strict")
    given = {name.removeprefix("max_"): value for name in _LIMITS if (value := parameters.pop(name)) is not None}
    weights = (*parameters.pop("weights_roots"), *_files(parameters.values()))
    options = Options(limits=replace(LIMITS, **given), profile=parameters.pop("profile"), weights=weights)
    return Session(ctx, reporter, options, parameters.pop("form_in"), dict(parameters.pop("bindings")))
