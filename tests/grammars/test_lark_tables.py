"""What is used of Lark beyond its documentation agrees with what is documented."""

from __future__ import annotations

import lark
import pytest

from ptir_tools.grammars import lark_tables

GRAMMAR = r"""
start: item+
item: WORD "(" [NUMBER] ")" ";" | "if" WORD ";"
WORD: /[a-z]+/
NUMBER: /\d+/
%ignore " "
"""


@pytest.fixture
def made() -> lark.Lark:
    return lark.Lark(GRAMMAR, parser="lalr", maybe_placeholders=False)


def test_the_table_takes_a_terminal_where_lark_accepts_it(made: lark.Lark) -> None:
    table, _ = lark_tables.automaton(made)
    state = table.start_states["start"]
    terminals = {name for name in table.states[state] if name.isupper()}
    assert terminals == made.parse_interactive("").accepts() == {"WORD", "IF"}
    assert set(lark_tables.lexers(made)) == set(table.states)


def test_a_lexer_says_its_order_and_its_words(made: lark.Lark) -> None:
    lexer = lark_tables.lexers(made)[lark_tables.automaton(made)[0].start_states["start"]]
    assert lark_tables.words(lexer) == {"WORD": {"if": "IF"}}
    assert "WORD" in [t.name for t in lark_tables.ranked(lexer)]


def test_a_grammar_comes_back_from_plain_data(made: lark.Lark) -> None:
    again = lark_tables.restored(lark_tables.serialized(made), None)
    assert again.parse("ab(1); if c;") == made.parse("ab(1); if c;")
    with pytest.raises(lark.exceptions.UnexpectedInput):
        again.parse("ab(;")


def test_what_would_mend_an_error(made: lark.Lark) -> None:
    with pytest.raises(lark.exceptions.UnexpectedToken) as error:
        made.parse("ab 1);")
    assert lark_tables.continues(error.value, "LPAR", "(")
    with pytest.raises(lark.exceptions.UnexpectedToken) as error:
        made.parse("ab(c);")
    assert not lark_tables.continues(error.value, "NUMBER", "1")
