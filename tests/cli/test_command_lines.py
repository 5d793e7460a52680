"""A command line of plain words means what click makes of it, for every command."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import click
import pytest

from ptir_tools.cli import parsing
from ptir_tools.cli.commands import COMMANDS, subcommand_of
from ptir_tools.cli.options import Kind, Parameter, Subcommand
from ptir_tools.cli.session import Given
from tests.conftest import run_ptir

Read = tuple[dict[str, Any], list[Given]]
VALUES = (
    "1",
    "a3",
    "numpy",
    "0",
    "-1",
    "1_0",
    " 7",
    "x",
    "",
    "-",
    "--full",
    "0.5",
    "nan",
    "inf",
    "1e999",
    "4K",
    "17",
    "18",
    "x=4,y=2",
    "N=3",
    "x=-,y",
    "é",
)


@cache
def made(name: str) -> click.Command:
    """The command of click."""
    return parsing.command(subcommand_of(name))


def by_click(name: str, words: list[str]) -> Read | None:
    """What click makes of a command line, None when it refuses it."""
    read: list[Read] = []
    command = made(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subcommand, "run", lambda *given: read.append(given[2:]))
        try:
            with command.make_context(name, list(words), obj=parsing.Reporter()) as ctx:
                command.invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            return None
    return read[0]


def same(name: str, words: list[str]) -> bool:
    """Whether a command line is plain; what it means is then the same."""
    plain = subcommand_of(name).plain(words)
    if plain is None:
        return False
    found = by_click(name, words)
    assert found is not None, words
    assert repr(sorted(plain[0].items())) == repr(sorted(found[0].items())) and repr(plain[1]) == repr(found[1]), words
    return True


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "words", [[], ["a"], ["-"], [""], ["a", "b"], ["bash"], ["a", "b", "c"], ["--"], ["--", "a"], ["a", "-"]]
)
def test_arguments_alone_mean_what_click_makes_of_them(name: str, words: list[str]) -> None:
    same(name, words)


def known(p: Parameter) -> Sequence[str]:
    """Words that are or may be values of a parameter."""
    kind = p.settings.get("type")
    return kind.arguments[0] if isinstance(kind, Kind) and kind.name == "choice" else VALUES


def required(name: str) -> list[str]:
    """What a command line of this command must have."""
    return [word for p in subcommand_of(name).parameters if p.required for word in [*p.spelled[:1], known(p)[0]]]


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_means_what_click_makes_of_it(name: str) -> None:
    """Every option with every value, in one word and in two, shortened, joined and without a value."""
    others = required(name)
    for p in subcommand_of(name).parameters:
        tried = [[word, value] for value in {*VALUES, *known(p)} for word in p.spelled]
        tried += [[f"{word}={value}"] for word, value in tried]
        tried += [words for word in p.spelled for words in ([word], [f"{word}x"], [word[:-1], "1"], [word, word])]
        plain = [same(name, [*others, *words]) for words in tried]
        assert any(plain) or not p.spelled or "/" in p.words[0] or p.metavar == "HOST:PORT,N,I", p.words


def test_options_among_arguments_mean_what_click_makes_of_them() -> None:
    draw = Random(0)
    for name in COMMANDS:
        options, plain = [p for p in subcommand_of(name).parameters if p.spelled], 0
        for _ in range(200):
            words = required(name)
            for p in draw.sample(options, 2):
                words += [draw.choice(p.spelled)] if p.is_flag else [draw.choice(p.spelled), draw.choice(known(p))]
                words += draw.choice([[], [], ["a"], ["-", "c"]])
            plain += same(name, words)
        assert plain, name


@pytest.mark.parametrize("name", ["verify", "fmt", "opt", "plan", "run", "stats", "hash", "info"])
def test_a_plain_command_line_needs_no_click(name: str) -> None:
    for words in (["a"], ["--diagnostics", "json", "a", "-q"], ["--max-errors=3", "a"], ["a", "--bind", "N=3", "--bind", "K=4"]):
        assert subcommand_of(name).plain(words) is not None


@pytest.mark.parametrize(
    "words",
    [
        ["verify", ""],
        ["fmt", "x", ""],
        ["diff", "a", ""],
        ["lit", ""],
        ["explain", ""],
        ["opt", "-o", "", "x"],
        ["run", "--trace", "", "x"],
    ],
    ids=" ".join,
)
def test_an_empty_name_is_wrong_usage(words: list[str]) -> None:
    """It is not standard input."""
    ran = run_ptir(*words, stdin=b"func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x\n}\n")
    assert ran.status == 2 and "the name is empty" in ran.err and not ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_says_whether_it_is_a_name(name: str) -> None:
    assert {p.is_name for p in subcommand_of(name).parameters} <= {False, True}
