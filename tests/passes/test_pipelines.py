"""Pipelines: how their text is read and checked, what runs, what hooks see."""

from __future__ import annotations

import pytest

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.passes import (
    Hook,
    PassContext,
    PassFailure,
    help_of,
    lookup,
    names,
    options_of,
    parse_pipeline,
    run_pipeline,
)
from ptir_tools.rewrite.pipeline import parse
from tests.conftest import ROOT
from tests.rewrite.test_rules import read


def f(*lines: str) -> str:
    return "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        (" \n# nothing\n", []),
        ("  a , b ,\n", ["a", "b"]),
        ("a # one\nb // two, c\n,d", ["a", "b", "d"]),
        ("a{ x , y = 1 , }", ["a{x=true,y=1}"]),
        ('a{x="b, {c}"}', ['a{x="b, {c}"}']),
        ("a, b{n=3}( c,\nd ,)", ["a", "b{n=3}(c,d)"]),
        ("a(" * 16 + ")" * 16, ["a(" * 16 + ")" * 16]),
    ],
)
def test_pipelines_are_read(text: str, steps: list[str]) -> None:
    assert [str(step) for step in parse(text)] == steps


def test_a_pipeline_that_is_nested_too_deep() -> None:
    with pytest.raises(UsageError, match="nested too deep"):
        parse("a(" * 17 + ")" * 17)


def test_lines_and_tabs_of_a_pipeline_are_counted() -> None:
    with pytest.raises(UsageError) as info:
        parse_pipeline("cse\n\tdcee", "ptir")
    said, shown, mark = str(info.value).split("\n")
    assert said.endswith("(line 2)") and (shown, mark) == ("   dcee", "   ^^^^")


@pytest.mark.parametrize(
    ("text", "message", "caret"),
    [
        ("canonicalise,cse", "did you mean `canonicalize`", 0),
        ("cse,dcee", "did you mean `dce`", 4),
        ("cse{n=1}", "no option `n`", 4),
        ("fixpoint{n=x}(cse)", "needs a number", 11),
        ("fusion-hints{min-score=nan}", "needs a number", 23),
        ('fusion-hints{policy="required}', "quotes are not closed", 20),
        ('"cse"', 'found `"`', 0),
        ("fixpoint", "takes passes", 0),
        ("cse(dce)", "takes no passes", 0),
        ("cse dce", "expected `,`", 4),
        ("cse,{", "name of a pass", 4),
        ("fixpoint(cse", "expected `)`", 12),
        ("cse{a=1,a=2}", "given twice", 8),
        ("fusion-hints{policy=must}", "is one of optional, preferred, required", 20),
        ("elementwise-fusion{backend=tritn}", "did you mean `triton`", 27),
        ("normalize", "is for tiny programs", 0),
    ],
)
def test_wrong_pipeline_is_pointed_into(text: str, message: str, caret: int) -> None:
    with pytest.raises(UsageError) as info:
        parse_pipeline(text, "ptir")
    said, shown, mark = str(info.value).split("\n")
    assert message in said and shown == f"  {text}" and mark.rstrip("^") == " " * (2 + caret) and mark.endswith("^")


def test_of_a_long_pipeline_what_is_near_the_error_is_shown() -> None:
    for text in ("cse," * 40 + "dcee" + ",cse" * 40, "cse," * 3 + "x" * 300, "dcee" + ",cse" * 99):
        with pytest.raises(UsageError) as info:
            parse_pipeline(text, "ptir")
        _, shown, mark = str(info.value).split("\n")
        wrong = "dcee" if "dcee" in text else "x"
        assert len(shown) < 130 and shown[mark.index("^") : len(mark)].startswith(wrong) and len(mark) <= len(shown)


def test_every_pass_of_every_dialect_has_help():
    for dialect in ("ptir", "pto", "mind", "tiny"):
        assert not [name for name in names(dialect) if not help_of(name, dialect).endswith(".")]
    assert "canonicalize" in names("ptir") and "raise-contractions" in names("ptir")
    with pytest.raises(KeyError):
        lookup("raise_contractions", "ptir")


def test_the_page_about_passes_names_every_pass_of_ptir_and_its_options():
    text = (ROOT / "docs" / "passes.md").read_text("utf-8")
    for name in names("ptir"):
        assert f"| `{name}` |" in text
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert all(f"`{option}" in row for option in options_of(name, "ptir")), row


def test_hooks_see_each_pass_and_whether_it_changed_anything():
    seen: list[tuple[str, bool]] = []

    class Watch(Hook):
        def after(self, step: object, program: Program, changed: bool) -> None:
            seen.append((str(step), changed))

    context = PassContext(hooks=[Watch()])
    run_pipeline(read(f("%a = neg(%x) -> tensor<f32, 2>", "return %x")), "fixpoint(dce)", context)
    assert seen == [("dce", True), ("dce", False)]
    assert [name for name, _ in context.timings] == ["dce", "dce"]


def test_pass_that_breaks_the_program_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Program, context: PassContext) -> None:
        program.main.body.reverse()

    monkeypatch.setattr(lookup("dce", "ptir"), "run", broken)
    text = f("%a = neg(%x) -> tensor<f32, 2>", "%b = exp(%a) -> tensor<f32, 2>", "return %b")
    with pytest.raises(PassFailure, match="after pass `dce`"):
        run_pipeline(read(text), "dce")
