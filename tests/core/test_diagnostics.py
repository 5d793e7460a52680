"""Every mistake is underlined where it is, alone, and mended where one edit is right.

In `testdata/diagnostics/marked.txt` a piece in «…» is to be underlined; what follows ⇒ in it is what `ptir fix` writes there.
A piece in ⟦…⇒…⟧ is edited and not underlined.
"""

from __future__ import annotations

import re

import pytest

from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import reading
from ptir_tools.tools.fix import fixed_text
from tests.conftest import TESTDATA

MARKED = re.split(r"^=== ", (TESTDATA / "diagnostics" / "marked.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
CASES = dict(case.split("\n", 1) for case in MARKED)
_MARK = re.compile(r"«([^«»⇒]*)(?:⇒([^«»⇒]*))?»|⟦([^⟦⟧⇒]*)⇒([^⟦⟧⇒]*)⟧")
_KINDS = ("missing", "misspelled")


def parsed(source: Source, diagnostics: Diagnostics, form: str) -> object:
    program = reading.read(source, diagnostics, Options(), form)
    if program is not None:
        verify(program, diagnostics)
    return program


def found(text: str, form: str) -> list[Diagnostic]:
    diagnostics = Diagnostics()
    parsed(Source("case", text), diagnostics, form)
    return [d for d in diagnostics.sorted() if d.severity is Severity.ERROR]


def unmarked(case: str) -> tuple[str, list[tuple[int, int]], str | None]:
    """The text, what is to be underlined in it, and the mended text where there is an edit."""
    text, spans, fixed, end, edits = "", [], "", 0, False
    for m in _MARK.finditer(case):
        between, wrong, right = case[end : m.start()], m[1] if m[1] is not None else m[3], m[2] if m[1] is not None else m[4]
        text, fixed, end = text + between, fixed + between, m.end()
        if m[1] is not None:
            spans.append((len(text), len(text) + len(wrong)))
        text, fixed, edits = text + wrong, fixed + (wrong if right is None else right), edits or right is not None
    return text + case[end:], spans, fixed + case[end:] if edits else None


@pytest.mark.parametrize("name", CASES)
def test_the_wrong_piece_is_underlined_and_mended(name: str) -> None:
    form = name.partition(" ")[0]
    text, spans, fixed = unmarked(CASES[name])
    errors = found(text, form)
    underlined = [(d.span.start, d.span.end) if d.span else None for d in errors]
    shown = [(text[slice(*span)] if span else None, d.message) for span, d in zip(underlined, errors, strict=True)]
    # an edit that only inserts is shown next to the character before it
    wanted = [span if span[0] < span[1] else (span[0] - 1, span[1]) for span in spans]
    assert underlined == wanted, shown
    left = Diagnostics()
    after = fixed_text(Source("case", text), lambda s, d: reading.read(s, d, Options(), form), left, unsafe=True)
    if fixed is None:
        assert after == text
    else:
        assert after == fixed
        assert not [d.message for d in left if d.severity is Severity.ERROR]


@pytest.mark.parametrize("name", CASES)
def test_a_suggestion_is_an_edit(name: str) -> None:
    text, _, _ = unmarked(CASES[name])
    for d in found(text, name.partition(" ")[0]):
        alone = (d.help or "").startswith("did you mean") and " or " not in (d.help or "")
        assert not alone or d.fix is not None, d


MANY = 400
UNKNOWN = {
    "ptir": ("func @f(%a: tensor<f32, 2>) -> tensor<f32, 2> {\n", "%valve{} = neg(%value{}) -> tensor<f32, 2>\n", "return %a\n}"),
    "pto": ("module { func.func @k(%a: index) {\n", "%valve{} = pto.addi %value{}, %a : index\n", "return\n}\n}"),
    "mind": ("%0 = Input {name=x} : tensor<f32[2]>\n", "%1{} = Relu (%2{}) : tensor<f32[2]>\n", "outputs: %0"),
}


@pytest.mark.parametrize("form", UNKNOWN)
def test_of_very_many_unknown_names_the_first_get_a_proposal(form: str) -> None:
    head, line, tail = UNKNOWN[form]
    errors = found("".join([head, *(line.replace("{}", f"{i:04}") for i in range(MANY)), tail]), form)
    assert len(errors) >= MANY
    assert 0 < sum(d.help is not None for d in errors) < MANY
