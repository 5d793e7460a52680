"""A command line of arguments alone means what click makes of it, for every command."""

from __future__ import annotations

import click
import pytest
from conftest import run_ptir

from ptir_tools.cli import COMMANDS, parsing, subcommand_of


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("words", [[], ["a"], ["-"], [""], ["a", "b"], ["bash"], ["a", "b", "c"]])
def test_arguments_alone_mean_what_click_makes_of_them(name: str, words: list[str]) -> None:
    declared = subcommand_of(name)
    group = parsing.Commands()
    command = group.get_command(click.Context(group), name)
    assert command is not None
    found = declared.plain(words)
    if found is None:
        return
    reporter = parsing.Reporter()
    with command.make_context(name, list(words), obj=reporter) as ctx:
        assert found[0] == ctx.params


@pytest.mark.parametrize("name", ["verify", "fmt", "opt", "plan", "run", "stats", "hash", "info"])
def test_a_file_alone_needs_no_click(name: str) -> None:
    assert subcommand_of(name).plain(["a"]) is not None


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
