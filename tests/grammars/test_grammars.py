"""What is made of a grammar: shapes are part of it, terminals are taken as its lexer takes them, its table runs as in Lark."""

import marshal
import re
import sys
from pathlib import Path
from typing import Any

import lark
import pytest
from lark.exceptions import UnexpectedInput

from ptir_tools import grammars
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.grammars import building, expressions
from ptir_tools.grammars.expressions import expression, of_this_python
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Table

WORDS = """
items: _item*
_item: statement | ended
statement: NAME "=" (NAME | NUMBER) ("to" NAME)? ("," NAME)*
ended: "end"
NAME: /[a-z][a-z.]*/
NUMBER.2: /[0-9]+|inf/
COMMENT: /#[^\\n]*/
BLANK: /[ \\n]+/
%ignore COMMENT
%ignore BLANK
"""


def made(*shapes: str) -> Table:
    text = WORDS + "\n".join(shapes)
    return building.table(lark.Lark(text, start="items", parser="lalr", propagate_positions=True, maybe_placeholders=False), text)


def line(shape: str, text: str) -> str | None:
    found = re.compile(made(f"// usual line: {shape}").lines).match(text)
    return found[0] if found else None


@pytest.mark.parametrize("shape", ['NAME "=" NAME "end" NAME', 'NAME "="', "NAME NAME"])
def test_a_shape_that_the_grammar_does_not_have_fails_the_build(shape: str) -> None:
    with pytest.raises(ValueError, match=r"the grammar does not|is not a whole"):
        made(f"// usual line: {shape}")


@pytest.mark.parametrize("shape", ['NAME "=" (NAME', "NAME ?", 'NAME "=" nothing'])
def test_a_shape_that_cannot_be_read_fails_the_build(shape: str) -> None:
    with pytest.raises((KeyError, UnexpectedInput)):
        made(f"// usual line: {shape}")


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("a = b", "a = b"),
        ("a=b # c\n", "a=b # c\n"),
        ("a = inf", None),  # a number, which comes first
        ("a = to", "a = to"),  # a word of the language, but not there
        ("end = b", None),  # a word of the language
        ("end.x = b", None),  # none, but it begins like one: the grammar decides
        ("a = tool", "a = tool"),
        ("a = b to c", None),  # goes on
        ("a = b , c", None),
        ("a = b c = d", "a = b "),
        ("a = b )", "a = b "),  # refused after it
        ("a =", None),
    ],
)
def test_a_terminal_is_taken_where_the_lexer_takes_it(text: str, taken: str | None) -> None:
    assert line('NAME "=" NAME', text) == taken


def test_captures_and_repetitions() -> None:
    pattern = re.compile(made('// part more: ("," NAME)*', '// usual line: id=NAME "=" (NAME | n=NUMBER) rest=(more)').lines)
    found = pattern.match("a = 12 , b,c\nd = e")
    assert found is not None
    assert found.groupdict() == {"id": "a", "n": "12", "rest": ", b,c", "line": ""}


@pytest.mark.parametrize(
    "text", ["", "end", "a = b", "a = b to c, d # x\nend a = 3", "a = ", "a = to", "a = b $", "a = inf.x", "to = b"]
)
def test_the_table_is_run_as_lark_runs_it(text: str) -> None:
    parser = Parser("words", made(), Nodes())
    reference = lark.Lark(WORDS, start="items", parser="lalr", maybe_placeholders=False)
    try:
        expected = _plain(reference.parse(text))
    except UnexpectedInput:
        with pytest.raises(Refused):
            parser.parse(text, "items")
    else:
        assert _plain(parser.parse(text, "items")) == expected


def _plain(x: Any) -> Any:
    if isinstance(x, (lark.Tree, Node)):
        return str(x.data), [_plain(c) for c in x.children]
    return x.type, str(x), x.start_pos, x.end_pos


def test_what_is_whole_before_an_error_is_kept_only_if_asked_for() -> None:
    class Actions(Nodes):
        seen: list[str] = []  # noqa: RUF012

        def ended(self, children: list[Any]) -> None:
            self.seen.append("end")

    actions = Actions()
    parser = Parser("words", made(), actions)
    for keep, count in ((False, 0), (True, 1)):
        with pytest.raises(Refused):
            parser.parse("end $", "items", keep=keep)
        assert len(actions.seen) == count
    with pytest.raises(Refused):
        parser.parse("a = b $", "items", keep=True)  # it could go on: what it is cannot be told
    assert len(actions.seen) == 1


@pytest.mark.parametrize("name", ["ptir", "ptir_dump", "mind", "pto"])
def test_an_expression_that_the_build_compiled_is_the_one_of_its_text(name):
    table = building.table(grammars._build(name), grammars.grammar_text(name))
    for text, made in table.compiled.items():
        assert expression(text, {text: made}) == re.compile(text)
        assert expression(text, {text: marshal.dumps((("another version",), *marshal.loads(made)[1:]))}) == re.compile(text)


def test_another_python_compiles_the_expressions_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it compiles is kept next to the tables; where it cannot be kept, expressions are compiled when they are used."""
    built = {text: marshal.dumps((("another version",), 0, [])) for text in ("a+", "(?P<b>b)|c")}
    monkeypatch.setattr(expressions, "HERE", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert of_this_python("x", built) is built and not list(tmp_path.iterdir())
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    found = of_this_python("x", built)
    assert all(expression(text, found) == re.compile(text) for text in built)
    (file,) = tmp_path.iterdir()
    monkeypatch.setattr(expressions, "saved", None)
    assert of_this_python("x", built) == found and of_this_python("y", found) is found
    monkeypatch.undo()
    monkeypatch.setattr(expressions, "HERE", str(tmp_path))
    for content in (b"", b"nothing", marshal.dumps({}), marshal.dumps(built), marshal.dumps(7)):
        file.write_bytes(content)
        assert of_this_python("x", built) == found


@pytest.mark.parametrize("name", ["mind", "ptir", "ptir_dump", "pto", "json"])
def test_line_readers_do_without_what_old_pythons_match_wrongly(name: str) -> None:
    """Before 3.11.5: a group that is repeated and keeps what it has, and a named group in one that keeps what it has."""
    pattern = grammars.lines(name).pattern
    assert not re.search(r"\)[*+?]\+", pattern)
    for m in re.finditer(r"\(\?>", pattern):
        depth, at = 1, m.end()
        while depth:
            step = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|[()]|.", re.DOTALL).match(pattern, at)
            assert step is not None
            depth, at = depth + {"(": 1, ")": -1}.get(step[0], 0), step.end()
        assert "(?P<" not in pattern[m.end() : at]


@pytest.mark.parametrize(
    ("text", "depth"),
    [("[[1], [2]]", 2), ("([{<>}])", 4), ("f<(a) -> b>", 2), ('["[[["]', 1), ("[[é]]", 2), ("[(]", 10)],
)
def test_brackets_are_counted(text: str, depth: int) -> None:
    """Of many brackets, so that none are left uncounted."""
    text = ", ".join([text] * 9)
    grammars.check_depth(text, Limits(nesting=depth))
    with pytest.raises(LimitExceeded, match="nested deeper"):
        grammars.check_depth(text, Limits(nesting=depth - 1))
