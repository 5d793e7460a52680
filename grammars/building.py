"""What the build step makes of a grammar: its parse table for `parser`, and the regular expression of the line reader.

A grammar says in its comments how statements usually look:

    // part ids: VID ("," VID)*
    // usual instruction: id=VID "=" opcode=WORD ["(" operands=[ids] ")"]

A shape has terminals, quoted text, parts, `(…)`, `[…]` for what may be left out, `|`, `*`, and captures `name=…`. Every way
through a shape is followed through the parse table, so a shape that the grammar does not have fails the build. The expression
takes a terminal only where the grammar's lexer would take it: not where a terminal of higher rank matches, and always at full
length. It takes the last terminal only where the statement ends.
"""

from __future__ import annotations

import marshal
import re
import sys
from collections.abc import Iterable

import lark
from lark.grammar import Rule, Symbol, Terminal
from lark.lexer import BasicLexer

from ptir_tools.core.cpython import parsed_regex
from ptir_tools.core.lazy import regex
from ptir_tools.core.typed import Any, TypeAlias
from ptir_tools.grammars import lark_tables
from ptir_tools.grammars.expressions import saved
from ptir_tools.grammars.parser import RuleText, Table

_PRAGMA = regex(r"^// (usual|part) (\w+): (.*)$", re.MULTILINE)
_WORDS = regex(r'"([^"]*)"|([a-z_]+)(?![a-z_=])')  # of a shape: quoted text, parts
_NOTATION = lark.Lark(
    r"""
    ?start: all | all ("|" all)+ -> one
    all: _item*
    _item: atom | many | capture
    capture: /[a-z_]+(?==)/ "=" (atom | many)
    many: atom "*"
    ?atom: /[A-Z_][A-Z_0-9]*/ -> terminal | "(" start ")" | "[" start "]" -> maybe
    %ignore " "
    """,
    parser="lalr",
)
Shape: TypeAlias = "lark.Tree[lark.Token]"
MOST_STACKS = 20_000
Stack = tuple[int, ...]


def table(made: lark.Lark, text: str) -> Table:
    """Everything that reading needs."""
    parse_table, by_state = lark_tables.automaton(made)[0], lark_tables.lexers(made)
    rules: list[RuleText] = []
    numbers: dict[Rule, int] = {}
    states: list[tuple[int, dict[str, int]]] = [(0, {})] * (len(parse_table.states) + 1)  # 0 means "may not come"
    lexers: list[tuple[str, dict[str, dict[str, str]]]] = []
    shared: dict[int, int] = {}
    for number, row in parse_table.states.items():
        actions: dict[str, int] = {}
        for symbol, (action, target) in row.items():
            if action.name == "Shift":
                actions[str(symbol)] = target + 1
            else:
                if target not in numbers:
                    numbers[target] = len(rules)
                    rules.append(_rule(target))
                actions[str(symbol)] = ~numbers[target]
        lexer = by_state[number]
        if id(lexer) not in shared:
            shared[id(lexer)] = len(lexers)
            lexers.append(_lexer(lexer, _ignored(made)))
        states[number + 1] = (shared[id(lexer)], actions)
    starts = {str(k): (v + 1, parse_table.end_states[k] + 1) for k, v in parse_table.start_states.items()}
    sources, words = [source for source, _ in lexers], [words for _, words in lexers]
    found = Table(starts, sources, words, _dropped(numbers), states, rules, "", {})
    lines = _Lines(found, made, text).pattern()
    return found._replace(lines=lines, compiled={pattern: saved(pattern) for pattern in (lines, *sources)})


def ordered(made: lark.Lark) -> lark.Lark:
    """`made` with the states of its table numbered by the words that lead to them: Lark numbers them by addresses in memory."""
    found, lexer = lark_tables.automaton(made)
    numbers: dict[int, int] = {}
    pending = list(found.start_states.values())
    for state in pending:  # which grows
        if state not in numbers:
            numbers[state] = len(numbers)
            actions = sorted(found.states[state].items(), key=lambda item: item[0])
            pending += [target for _, (action, target) in actions if action.name == "Shift"]
    found.states = {
        number: {
            symbol: (action, numbers[target] if action.name == "Shift" else target)
            for symbol, (action, target) in sorted(found.states[state].items(), key=lambda item: item[0])
        }
        for state, number in numbers.items()
    }
    found.start_states = {name: numbers[state] for name, state in found.start_states.items()}
    found.end_states = {name: numbers[found.end_states[name]] for name in found.start_states}
    lexer.lexers = {number: lexer.lexers[state] for state, number in numbers.items()}
    return made


def packed(data: object) -> bytes:
    """Plain data as `marshal` writes it when equal values are one object: how they came about does not show."""
    return marshal.dumps(_shared(data, {}))


def _shared(data: Any, known: dict[object, Any]) -> Any:
    if isinstance(data, dict):
        return {_shared(key, known): _shared(value, known) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        parts = [_shared(value, known) for value in data]
        return parts if isinstance(data, list) else (*parts,)
    return known.setdefault((type(data), data), sys.intern(data) if isinstance(data, str) else data)


def _rule(rule: Rule) -> RuleText:
    origin = str(rule.origin.name)
    kept = [(i, not x.is_term and x.name.startswith("_")) for i, x in enumerate(rule.expansion) if not _left_out(x)]
    plain = len(kept) == len(rule.expansion) and not any(inline for _, inline in kept)
    single = bool(rule.options and rule.options.expand1 and not rule.alias)
    name = str(rule.alias or origin)
    return origin, len(rule.expansion), "" if name.startswith("_") else name, None if plain else kept, single


def _left_out(x: Symbol) -> bool:
    """Whether a symbol is a terminal that no action is given."""
    return isinstance(x, Terminal) and x.filter_out


def _dropped(rules: Iterable[Rule]) -> list[str]:
    """The terminals that no action is given."""
    symbols = [x for rule in rules for x in rule.expansion if x.is_term]
    return sorted({str(x.name) for x in symbols} - {str(x.name) for x in symbols if not _left_out(x)})


def _ignored(made: lark.Lark) -> str:
    """The pattern of what may come between terminals."""
    patterns = {t.name: _without_groups(t.pattern.to_regexp()) for t in made.terminals}
    skipped = [patterns[n] for n in made.ignore_tokens]
    if len(skipped) == 1 and re.fullmatch(r"\[[^]]*\]\+", skipped[0]):
        return f"{skipped[0][:-1]}*+"
    blanks = [s for s in skipped if re.fullmatch(r"\[[^]]*\]\+", s)]
    if len(blanks) == 1:  # they are what is there nearly always
        others = "|".join(s for s in skipped if s not in blanks)
        return f"{blanks[0][:-1]}*+(?>(?:(?:{others}){blanks[0][:-1]}*+)*)"
    return f"(?>(?:{'|'.join(skipped)})*)"


def _blank(ignored: str) -> str:
    """The part of what is ignored that comes inside of a statement in usual form: all before its comments."""
    return ignored.partition("(?>")[0] or ignored


def _lexer(lexer: BasicLexer, ignored: str) -> tuple[str, dict[str, dict[str, str]]]:
    """The alternatives in the order in which Lark tries them, and the words that are terminals of their own."""
    terminals = [t for t in lark_tables.ranked(lexer) if t.name not in lexer.ignore_types]
    ways = [f"(?P<{t.name}>{_without_groups(t.pattern.to_regexp())})" for t in terminals]
    return f"{ignored}(?:{'|'.join(ways)})?", lark_tables.words(lexer)


class _Lines:
    """Shapes on their way to a regular expression."""

    def __init__(self, found: Table, made: lark.Lark, text: str) -> None:
        self.states, self.rules = found.states, found.rules
        self.start, self.final = next(iter(found.starts.values()))
        by_state = lark_tables.lexers(made)
        self.lexers: list[BasicLexer] = [by_state[max(i, 0)] for i in range(-1, len(self.states) - 1)]  # from 1 on
        self.terminals = {str(t.name): t for t in made.terminals}
        self.named = {t.pattern.value: str(t.name) for t in made.terminals if type(t.pattern).__name__ == "PatternStr"}
        self.firsts = {n: _first(parsed_regex(t.pattern.to_regexp())) for n, t in self.terminals.items()}
        self.regexps = {n: _without_groups(t.pattern.to_regexp()) for n, t in self.terminals.items()}
        self.skip = _ignored(made)
        self.blank = _blank(self.skip)
        self.parts = {name: shape for kind, name, shape in _PRAGMA.findall(text) if kind == "part"}
        self.shapes = {name: shape for kind, name, shape in _PRAGMA.findall(text) if kind == "usual"}
        self.edges: list[list[tuple[Shape | None, int]]] = []
        self.seen: dict[int, set[int]] = {}  # the states in which the terminal of an edge's shape is met

    def pattern(self) -> str:
        """One alternative per shape; the name of the one that matched is the match's `lastgroup`."""
        return "|".join(f"(?:{self.shape(name, shape)}(?P<{name}>))" for name, shape in self.shapes.items())

    def shape(self, name: str, text: str) -> str:
        node = _NOTATION.parse(self.spelled(text))
        self.edges, self.seen = [], {}
        first, last = self.new(), self.new()
        self.connect(node, first, last)
        ends = self.follow(name, first, last)
        following = {n for n in (*self.terminals, "$END") if all(self.over(stack, n) for stack in ends)}
        if not following:
            raise ValueError(f"the shape `{name}` is not a whole statement")
        return self.emit(node, "") + self.skip + (r"\Z" if following == {"$END"} else self.ending(ends))

    def spelled(self, text: str) -> str:
        """A shape of terminals alone."""
        return _WORDS.sub(lambda m: self.named[m[1]] if m[2] is None else f"({self.spelled(self.parts[m[2]])})", text)

    # ---- through the parse table

    def new(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def connect(self, node: Shape, first: int, last: int) -> None:
        """Edges for every way through `node`; one of None costs no terminal."""
        parts = [x for x in node.children if isinstance(x, lark.Tree)]
        if node.data == "terminal":
            self.edges[first].append((node, last))
        elif node.data == "all":
            for part in parts:
                self.connect(part, first, between := self.new())
                first = between
            self.edges[first].append((None, last))
        else:
            for part in parts:
                self.connect(part, first, first if node.data == "many" else last)
            if node.data in ("many", "maybe"):
                self.edges[first].append((None, last))

    def follow(self, name: str, first: int, last: int) -> set[Stack]:
        """Walk all ways through the shape; where they end."""
        ends: set[Stack] = set()
        pending: list[tuple[int, Stack]] = [(first, (self.start,))]
        known = set(pending)
        while pending:
            at, stack = pending.pop()
            if at == last:
                ends.add(stack)
            for node, target in self.edges[at]:
                after = stack
                if node is not None:
                    self.seen.setdefault(id(node), set()).add(stack[-1])
                    reduced, action = self.reduced(stack, str(node.children[0]))
                    if action is None:
                        raise ValueError(f"the shape `{name}` has {node.children[0]} where the grammar does not")
                    after = (*reduced, action)
                if (target, after) not in known:
                    known.add((target, after))
                    pending.append((target, after))
            if len(known) > MOST_STACKS:
                raise ValueError(f"the shape `{name}` nests without end")
        return ends

    def reduced(self, stack: Stack, terminal: str) -> tuple[Stack, int | None]:
        """The stack when `terminal` comes next, and the state that it leads to; None where it may not come."""
        while True:
            action = self.states[stack[-1]][1].get(terminal)
            if action is None or action >= 0:
                return stack, action
            origin, length, *_ = self.rules[~action]
            stack = stack[: len(stack) - length]
            stack = (*stack, self.states[stack[-1]][1][origin])
            if terminal == "$END" and stack[-1] == self.final:
                return stack, self.final

    def over(self, stack: Stack, terminal: str) -> bool:
        """Whether the statement on the stack is over when `terminal` comes next."""
        after, action = self.reduced(stack, terminal)
        return action is not None and len(after) <= 2

    # ---- to a regular expression

    def emit(self, node: Shape, lead: str) -> str:
        """The expression of a node; `lead` comes before its first terminal."""
        parts = [x for x in node.children if isinstance(x, lark.Tree)]
        if node.data == "terminal":
            return lead + self.terminal(node)
        if node.data == "capture":
            return f"{lead}(?P<{node.children[0]}>{self.emit(parts[0], '')})"
        if node.data == "all":
            return "".join(self.emit(part, lead if i == 0 else self.blank) for i, part in enumerate(parts))
        if node.data == "one":
            made = "|".join(self.emit(part, lead) for part in parts)
        elif node.data == "many":
            made = f"(?:{self.emit(parts[0], lead or self.blank)})*"
        else:
            made = f"(?:{self.emit(parts[0], lead)})?"
        # Before Python 3.11.5, `(?:…)*+` matches wrongly when there is a choice inside, and a group in `(?>…)` has another end.
        return f"(?:{made})" if "(?P<" in made else f"(?>{made})"

    def terminal(self, node: Shape) -> str:
        """A terminal at full length, where none comes before it in any state in which it is met."""
        name = str(node.children[0])
        before: dict[str, None] = {}
        words: dict[str, None] = {}
        whole = ""
        for state in self.seen.get(id(node), ()):
            lexer = self.lexers[state]
            ranked = [str(t.name) for t in lark_tables.ranked(lexer)]
            for regular, among in lark_tables.words(lexer).items():
                if regular == name:
                    words |= dict.fromkeys(map(re.escape, among))
                elif name in among.values():
                    whole = r"(?![\w.$-])"
            rank = ranked.index(name) if name in ranked else 0
            before |= dict.fromkeys(n for n in ranked[:rank] if self.overlap(n, name))
        guards = [self.regexps[n] for n in before]
        guards += [f"(?:{'|'.join(words)})(?![A-Za-z0-9_])"] if words else []
        value = self.regexps[name] if name in self.named.values() else f"(?>{self.regexps[name]})"
        return (f"(?!{'|'.join(guards)})" if guards else "") + value + whole

    def overlap(self, a: str, b: str) -> bool:
        """Whether two terminals may begin with the same character."""
        x, y = self.firsts[a], self.firsts[b]
        return x is None or y is None or bool(x & y)

    def ending(self, stacks: set[Stack]) -> str:
        """Not before what continues the statement."""
        more = [self.regexps[n] for n in self.terminals if any(self.continues(stack, n) for stack in stacks)]
        return f"(?!{'|'.join(more)})" if more else ""

    def continues(self, stack: Stack, terminal: str) -> bool:
        """Whether `terminal` may come next and belongs to the statement on the stack."""
        return self.reduced(stack, terminal)[1] is not None and not self.over(stack, terminal)


def _without_groups(pattern: str) -> str:
    """The pattern with groups that capture nothing."""
    return re.sub(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\((?!\?)", lambda m: m[1] or "(?:", pattern)


def _first(parsed: Any) -> set[int] | None:
    """The characters with which a match may begin; None for any."""
    found: set[int] = set()
    for step, value in parsed:
        more, empty = _begins(str(step), value)
        if more is None:
            return None
        found |= more
        if not empty:
            return found
    return None


def _begins(step: str, value: Any) -> tuple[set[int] | None, bool]:
    """The first characters of one step of a parsed expression, and whether it may be empty."""
    if step == "LITERAL":
        return {value}, False
    if step == "IN":
        return _in(value), False
    if step in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _first(value[2]), value[0] == 0
    if step == "SUBPATTERN":
        return _first(value[3]), False
    if step == "BRANCH":
        ways = [_first(x) for x in value[1]]
        return None if None in ways else set().union(*(w for w in ways if w is not None)), False
    return (set(), True) if step in ("AT", "ASSERT", "ASSERT_NOT") else (None, False)


def _in(items: Any) -> set[int] | None:
    found: set[int] = set()
    for step, value in items:
        if str(step) == "LITERAL":
            found.add(value)
        elif str(step) == "RANGE":
            found.update(range(value[0], value[1] + 1))
        elif str(value) == "CATEGORY_DIGIT":
            found.update(range(ord("0"), ord("9") + 1))  # other digits are in no range of a grammar
        else:  # another category, a negation
            return None
    return found
