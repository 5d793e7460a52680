"""Every reader with a fast path is held to its grammar: the same program, or the same findings at the same places.

Texts are the samples of testdata as they are, with their names replaced by what could be taken for something else (numbers and
words of the text, these without their first character, keywords, prefixes of each other), and with tokens and lines mutated.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import lark
import pytest

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Element, Literal, Op, Region
from ptir_tools.core.limits import LIMITS, LimitExceeded
from ptir_tools.core.source import Source
from ptir_tools.dialects import jsonc, load_format, reading
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.sniff import sniff
from ptir_tools.grammars.parser import Parser, Refused, Token, token

ROOT = Path(__file__).parents[2] / "testdata"
BIGGEST = 12_000  # characters of a sample: the grammar takes 0.1 ms an op


@dataclass(frozen=True)
class Form:
    """A text format: how its names are found and spelled, and how its reader is made to use the grammar alone."""

    name: str
    names: str
    keywords: tuple[str, ...]
    grammar_alone: Callable[[pytest.MonkeyPatch], None]


def _lark_alone(patch: pytest.MonkeyPatch) -> None:
    """No line reader, and Lark itself instead of our way through its tables."""
    patch.setattr(grammars, "lines", lambda name: re.compile(r"(?!)"))
    patch.setattr(Parser, "parse", _by_lark)
    patch.setattr(lark.Token, "loc", Token.loc, raising=False)
    patch.setattr(lark.Token, "to", Token.to, raising=False)
    patch.setattr(lark.Token, "natural", Token.natural, raising=False)


def _by_lark(
    self: Parser, text: str, start: str, *, keep: bool = False, at: int = 0, end: int | None = None, lines: Any = None
) -> Any:
    """As `Parser.parse`, by Lark."""
    places = any(located for *_, located in self.rules)  # Lark's own actions take no places: its trees are read afterwards
    reading = (_trees(self.name) if places else _lark(self)).parse_interactive(" " * at + text[at:end], start=start)
    try:
        for _ in reading.iter_parse():
            pass
        found = reading.feed_eof()
    except lark.exceptions.UnexpectedInput:
        state = reading.parser_state
        if keep and all(action.name == "Reduce" for action, _ in state.parse_conf.parse_table.states[state.position].values()):
            with suppress(lark.exceptions.UnexpectedInput):
                reading.feed_eof()
        for part in state.value_stack if places else ():
            _folded(part, self.actions)
        raise Refused from None
    return _folded(found, self.actions) if places else found


def _folded(tree: Any, actions: Any) -> Any:
    """What actions make of Lark's tree."""
    if isinstance(tree, lark.Token):
        return token(tree.type, str(tree), tree.start_pos or 0, tree.end_pos or 0)
    children = [_folded(x, actions) for x in tree.children]
    method = getattr(actions, tree.data, lambda children: children)
    place = getattr(tree.meta, "start_pos", 0), getattr(tree.meta, "end_pos", 0)  # what holds nothing has none
    return method(children, *place) if hasattr(method, "located") else method(children)


@cache
def _trees(name: str) -> lark.Lark:
    return grammars.load(name)


@cache
def _lark(parser: Parser) -> lark.Lark:
    return grammars.load(parser.name, parser.actions)


FORMS = {
    f.name: f
    for f in (
        Form("ptir", r"%([\w.$]+)", ("func", "return", "region", "hint", "tuple", "dense", "tensor", "inf"), _lark_alone),
        Form("ptir-dump", r"%((?:arg|res)?[0-9]+)", ("arg0", "res0", "0", "00"), _lark_alone),
        Form(
            "pto",
            r"%([A-Za-z0-9_$.-]+)",
            ("to", "step", "else", "true", "index", "wait", "tile", "valid", "-1", "-", ".5", "0x2"),
            _lark_alone,
        ),
        Form(
            "mind",
            r"%([0-9]+|[A-Za-z_]\w*)",
            ("outputs", "inputs", "tensor", "Tensor", "true", "None", "inf"),
            _lark_alone,
        ),
    )
}
TOKEN = re.compile(r'%?[\w.$]+|"[^"\n]*"|->|[^\w\s]')


def _texts() -> list[tuple[str, str, str]]:
    """(file, format, text) of the samples, one of a content."""
    found: dict[str, tuple[str, str, str]] = {}
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in (".ptir", ".pto", ".mind", ".ir", ".in", ".json", ".txt") and path.stat().st_size <= BIGGEST:
            text = path.read_text(errors="replace")
            found.setdefault(text, (str(path.relative_to(ROOT)), sniff(text) or "", text))
    return [x for x in found.values() if x[1] in FORMS]


SAMPLES = _texts()
JSON = sorted(p for p in ROOT.rglob("*.json") if p.stat().st_size <= BIGGEST)


def told(form: Form, text: str, *, grammar_alone: bool) -> tuple[object, ...]:
    """What reading says and makes of a text."""
    source = Source("x", text)
    found = Diagnostics(source)
    with pytest.MonkeyPatch.context() as patch:
        if grammar_alone:
            form.grammar_alone(patch)
        try:
            program = load_format(form.name).read(source, found, Options())
        except LimitExceeded as limit:
            return (str(limit),)
    said = sorted((d.span or (), d.code, d.severity, d.message) for d in found.items)
    return said, program is not None and not found.errors and shown(program)


def shown(program: Program) -> list[object]:
    """Everything that a program holds, values by number."""
    numbers: dict[object, int] = {}

    def operand(x: Any) -> object:
        if isinstance(x, Literal):
            return x.type, x.splat, x.data
        if isinstance(x, Element):
            return operand(x.value), x.index
        return numbers.setdefault(x, len(numbers)), x.name, x.type

    def op(o: Op) -> object:
        attrs = [operand(a) if isinstance(a, Literal) else repr(a) for a in o.attrs]
        nested = [r.name if r.isolated else block(r) for r in o.regions]
        return o.name, [*map(operand, o.operands)], attrs, [*map(operand, o.results)], nested, o.loc

    def hint(h: Hint) -> object:
        body = [*map(operand, h.inputs)], [*map(op, h.body)], [*map(operand, h.exports)]
        return h.id, h.kind, h.policy, repr(h.attrs), *body, h.loc

    def block(b: Region) -> object:
        inside = [*map(operand, b.params)], [*map(op, b.body)], [*map(operand, b.results)]
        hints = [*map(hint, getattr(b, "annotations", ()))]
        return b.name, *inside, b.result_types, b.loc, b.return_loc, repr(getattr(b, "attrs", None)), hints

    return [repr(program.attrs), program.entry, *map(block, program.functions), *map(block, program.regions)]


def same(form: str, text: str) -> None:
    f = FORMS[form]
    fast, slow = told(f, text, grammar_alone=False), told(f, text, grammar_alone=True)
    assert fast == slow, text


def renamed(form: Form, text: str, draw: Random, scheme: str) -> str:
    """`text` with all its names replaced, each by another of what `scheme` offers."""
    names = list(dict.fromkeys(re.findall(form.names, text)))
    words = [*dict.fromkeys(re.findall(r"-?[\w.$]+", text))]
    offered = {
        "numbers": [w for w in words if w.isdigit()],
        "tails": [w[1:] for w in words if len(w) > 1],
        "tokens": words,
        "keywords": [*form.keywords],
        "prefixes": [],
        "digits": [],
    }[scheme]
    taken = [w for w in dict.fromkeys(offered) if re.fullmatch(form.names, "%" + w)]
    draw.shuffle(taken)
    longer = ("1" * n if scheme == "digits" or form.name == "ptir-dump" else "a" * n for n in range(1, len(names) + 1))
    new = dict(zip(names, [w for w in [*taken, *(x for x in longer if x not in taken)] if w], strict=False))
    return re.sub(form.names, lambda m: "%" + new[m[1]], text)


def mutated(text: str, draw: Random) -> str:
    """`text` with a few tokens or lines dropped, doubled, swapped or replaced by others of it."""
    for _ in range(draw.randrange(1, 4)):
        if draw.randrange(4) == 0:
            rows = text.split("\n")
            i, j = draw.randrange(len(rows)), draw.randrange(len(rows))
            rows[i : i + 1] = draw.choice([[], [rows[i]] * 2, [rows[j]], [rows[i] + rows[j]]])
            text = "\n".join(rows)
        tokens = [*TOKEN.finditer(text)]
        if not tokens:
            return text
        a, b = draw.choice(tokens), draw.choice(tokens)
        by = draw.choice(["", f"{a[0]} {a[0]}", b[0], b[0], b[0].lstrip("%"), "%" + b[0], b[0][1:], f"{b[0]}\n", "\n", "{", "}"])
        text = text[: a.start()] + by + text[a.end() :]
    return text


@pytest.mark.parametrize(("form", "text"), [pytest.param(f, t, id=name) for name, f, t in SAMPLES])
def test_names_mean_what_they_mean_to_the_grammar(form: str, text: str) -> None:
    same(form, text)
    for scheme in ("numbers", "tails", "tokens", "keywords", "prefixes", "digits"):
        same(form, renamed(FORMS[form], text, Random(scheme), scheme))


@pytest.mark.parametrize(("form", "text"), [pytest.param(f, t, id=name) for name, f, t in SAMPLES])
def test_mutated_statements_read_the_same(form: str, text: str) -> None:
    draw = Random(text)
    for _ in range(MUTANTS):
        same(form, mutated(text, draw))


MUTANTS = 4  # of each sample


@pytest.mark.parametrize("form", FORMS)
def test_there_are_samples_of_every_format(form: str) -> None:
    assert sum(f == form for _, f, _ in SAMPLES) > 3


# What statements have in common is read once: it must not be what only looks alike.

_T, _PAD = "tensor<f32, 4>", "low[0] high[0] interior[0] pad_value[1]"
_FUNC = "func @main(%x: tensor<f32, 4>, %n: tensor<si32, 4>) -> tensor<f32, 4> {\n"
LOOK_ALIKE = {
    "a name that is given twice, whose type is then not known": (
        "ptir",
        f"{_FUNC}%a = add(%x, %x) -> {_T}\n%a = add(%x, %x) -> {_T}\n%b = add(%x, %x) -> {_T}\nreturn %b\n}}",
    ),
    "a hint's op, which has the type of the function's": (
        "ptir",
        f"program @main (spec_version = ptir.v0.4) {{\n{_FUNC}%a = exp(%x) -> {_T}\nreturn %a\n"
        "hint 0 ElementwiseDag Preferred inputs[%x] exports[%a] {\n%a = exp(%x) -> tensor<f32, 5>\n}\n}\n"
        f"{_FUNC.replace('main', 'f')}%a = exp(%x) -> tensor<f32, 5>\nreturn %x\n}}\n}}",
    ),
    "a scalar in the kind of its operand": (
        "ptir",
        f"{_FUNC}%a = pad(%x) {_PAD} -> {_T}\n%b = pad(%n) {_PAD} -> {_T}\n%c = pad(%x) {_PAD} -> {_T}\nreturn %c\n}}",
    ),
    "an operand whose type is not known": (
        "ptir",
        f"{_FUNC}%a = nothing(%x) -> {_T}\n%b = pad(%a) {_PAD} -> {_T}\n%c = pad(%n) {_PAD} -> {_T}\nreturn %c\n}}",
    ),
    "an extent of 0, which only a Slice makes": (
        "mind",
        "%0 = Input {name=x} : tensor<f32[4]>\n%1 = Mul (%0, %0) : tensor<f32[0]>\n%2 = Mul (%0, %0) : tensor<f32[0]>\n"
        "%3 = Slice (%0) {starts=[0], ends=[0], steps=[1]} : tensor<f32[0]>\n%4 = Mul (%3, %3) : tensor<f32[0]>\n"
        "%5 = Mul (%3, %3) : tensor<f32[0]>\noutputs: %5",
    ),
    "ids that ascend, and ids that are names": (
        "mind",
        "%0 = Input {name=x} : tensor<f32[4]>\n%5 = Mul (%0, %0)\n%4 = Mul (%0, %0)\n%007 = Mul (%0, %0)\n"
        f"%{'9' * 30} = Mul (%0, %0)\n%a = Mul (%0, %0)\n%a = Mul (%0, %0)\noutputs: %4",
    ),
}


@pytest.mark.parametrize("what", LOOK_ALIKE)
def test_what_looks_alike_is_read_apart(what: str) -> None:
    same(*LOOK_ALIKE[what])


# JSON: the decoder and the grammar, which says what is wrong with what the decoder refuses


@pytest.mark.parametrize("path", JSON, ids=lambda p: str(p.relative_to(ROOT)))
def test_json_is_what_the_grammar_takes(path: Path) -> None:
    text, draw = path.read_text(), Random(path.name)
    for made in [text, *(mutated(text, draw) for _ in range(MUTANTS))]:
        found = Diagnostics(source := Source("x", made))
        value = jsonc.parse(source, found)
        assert (value is None) == bool(found.errors)
        assert all("cannot be read" not in d.message for d in found.items), made
        if not found.errors:
            grammars.load("json").parse(made)
            assert value == json.loads(jsonc.blank_comments(made))


# What took long: each of these took minutes, or gigabytes.


def errors_of(form: str, text: str) -> list[Diagnostic]:
    found = Diagnostics()
    reading.read(Source("<long>", text), found, Options(), form)
    return [d for d in found.sorted() if d.severity is Severity.ERROR]


def test_many_missing_commas_are_found_in_a_text_without_its_comments_that_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(jsonc, "blank_comments", lambda text, kept=jsonc.blank_comments: (made.append(1), kept(text))[1])
    rows = "\n".join('{"id": "x" "uop": "INPUT"}, // a comment' for _ in range(50))
    found = errors_of("tiny", f'{{"uops": [\n{rows} {{}}]}}')
    assert len([d for d in found if "`,` is missing" in d.message]) >= 20 and len(made) <= 2


@pytest.mark.parametrize("opened", [1, 3, 3_000])
def test_braces_that_nothing_closes_are_mended_where_few_are_open(opened: int) -> None:
    loop = "  scf.for %i = %c0 to %n step %c0 {\n"
    text = "func.func @f(%n: index) {\n  %c0 = pto.constant 0 : index\n" + loop * opened
    (found,) = errors_of("pto", text)
    assert "`}` is missing" in found.message and (found.fix is not None) is (opened < LIMITS.nesting)
    assert found.fix is None or found.fix.text.count("}") == opened + 1


def test_an_arrow_does_not_end_a_type_that_nothing_closes() -> None:
    """Each `->` was tried as both, in types within types."""
    header = "func.func @main(%x: tensor<2x3xf32>) -> tensor<2xf32 {\n"
    (found,) = errors_of("stablehlo", header * 200 + "}")
    assert found.message == "`>` is missing after `tensor<2xf32`"


@pytest.mark.parametrize("dims", ["9" * 5_000 + ", 2x", "?a" * 500 + ", 2x", "2, " * 2_000 + "x", " ".join("2" * 500) + ", 2x"])
def test_a_list_of_extents_is_read_in_one_way(dims: str) -> None:
    text = f"func @f(%x: tensor<f32, {dims}>) -> tensor<f32, 2> {{\n  return %x\n}}\n"
    with suppress(LimitExceeded):
        assert errors_of("ptir", text)


@pytest.mark.parametrize("dims", ["?x1x1x" * 40, "?N" * 40, "?axbxcx" * 40])
def test_a_type_as_mlir_spells_it_is_read_in_one_way(dims: str) -> None:
    text = f"func @f(%x: tensor<{dims}!>) -> tensor<f32, 2> {{\n  return %x\n}}\n"
    assert errors_of("ptir", text)
