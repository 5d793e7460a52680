"""All that this package uses of Lark and its documentation does not have. `tests/grammars/test_lark_tables.py` compares it with
what is documented."""

from __future__ import annotations

from copy import copy

import lark
from lark.lexer import BasicLexer

from ptir_tools.core.typed import Any


def automaton(made: lark.Lark) -> tuple[Any, Any]:
    """The parse table of a grammar (`states`, `start_states`, `end_states`) and its lexer, which has a lexer for each state."""
    frontend: Any = made.parser
    return frontend.parser._parse_table, frontend.lexer


def lexers(made: lark.Lark) -> dict[int, BasicLexer]:
    """The lexer of each state."""
    found: dict[int, BasicLexer] = automaton(made)[1].lexers
    return found


def ranked(lexer: BasicLexer) -> list[Any]:
    """The terminals of a lexer in the order in which it tries them."""
    return [*lexer.scanner.terminals]


def words(lexer: BasicLexer) -> dict[str, dict[str, str]]:
    """The texts of a terminal that are terminals of their own."""
    ranked(lexer)  # which builds the callbacks
    callbacks: dict[str, Any] = {**lexer.callback}
    return {str(name): {t.pattern.value: str(t.name) for t in own.scanner.terminals} for name, own in callbacks.items()}


def serialized(made: lark.Lark) -> Any:
    """A grammar as plain data."""
    return made.memo_serialize([lark.lexer.TerminalDef, lark.grammar.Rule])


def restored(data: Any, transformer: object) -> lark.Lark:
    """The grammar that `serialized` gave as data."""
    kind: Any = lark.Lark
    made: lark.Lark = kind._load_from_dict(*data, transformer=transformer)
    return made


def continues(error: lark.exceptions.UnexpectedToken, terminal: str, text: str) -> bool:
    """Whether the token in error could come if `text`, a terminal that may be there, were before it."""
    parser: Any = error.interactive_parser
    trial = parser.copy(deepcopy_values=False)
    trial.parser_state.parse_conf = copy(trial.parser_state.parse_conf)
    trial.parser_state.parse_conf.callbacks = {}  # a trial reads nothing
    trial.feed_token(lark.Token(terminal, text))
    return error.token.type in trial.accepts()
