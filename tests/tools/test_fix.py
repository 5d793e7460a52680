"""Safe edits: they mend the spelling of syntax, and never make another program of one that verifies."""

from __future__ import annotations

import json
import random
import re

import pytest

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, Fix, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.render import record, sarif
from ptir_tools.core.source import Source, Span
from ptir_tools.dialects import reading
from ptir_tools.tools.fix import fixed_text, separate

PTIR = """func @f(%x: tensor<f32, 2x3>, %k: tensor<f32, 2x3>) -> tensor<f32, 2x3> {
  %a = log(%x) -> tensor<f32, 2x3>
  %b = reduce_max(%a) axes[1] keepdims[true] -> tensor<f32, 2x1>
  %c = broadcast_to(%b) result_shape[2, 3] -> tensor<f32, 2x3>
  %d = compare_lt(%c, %k) -> tensor<i1, 2x3>
  %e = select(%d, %a, %k) -> tensor<f32, 2x3>
  return %e
}
"""
PTO = """func.func @k(%a: pto.memref<64x64xf32>, %o: pto.memref<64x64xf32>) {
  %c0 = pto.constant 0 : index
  %t = pto.tile.load %a[%c0, %c0] : pto.memref<64x64xf32>, pto.tile<64x64xf32>
  %u = pto.tile.exp %t : pto.tile<64x64xf32>
  pto.tile.store %u, %o[%c0, %c0] : pto.memref<64x64xf32>, pto.tile<64x64xf32>
  return
}
"""
TINY = """{"uops": [
  {"id": "a", "uop": "INPUT", "arg": {"tensor_id": "A", "dtype": "fp32", "shape": [4, 3]}},
  {"id": "b", "uop": "EXP2", "src": ["a"]},
  {"id": "c", "uop": "MAX", "src": ["a", "b"]},
  {"id": "d", "uop": "REDUCE", "src": ["c"], "arg": {"op": "MAX", "axes": [1], "dtype": "fp32"}}
]}
"""
MIND = """%0 = Input {name="x"} : tensor<f32[2, 3]>
%1 = Exp(%0)
%2 = Relu(%1)
%3 = Sum(%2) {axes=[1], keepdims=false}
outputs: %3
"""
PROGRAMS = {"ptir": PTIR, "pto": PTO, "tiny": TINY, "mind": MIND}


def mended(form: str, text: str, unsafe: bool = False) -> tuple[str, Diagnostics]:
    left = Diagnostics()
    return fixed_text(Source("case", text), lambda s, d: reading.read(s, d, Options(), form), left, unsafe=unsafe), left


def words(text: str) -> list[str]:
    return [w.casefold() for w in re.findall(r"\w+", text)]


def names(form: str) -> list[str]:
    """Every op, attribute and dtype of a format's tables."""
    ops = [d for d in OPS.values() if d.name.startswith(f"{form}.")]
    return sorted({d.short for d in ops} | {a for d in ops for a in d.attr_index} | set(map(str, PTIR_DTYPES)))


def misspelled(name: str, rng: random.Random) -> str:
    """`name` with a letter dropped, doubled, swapped or replaced, or another ending."""
    at = rng.randrange(len(name))
    forms = [name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:], name[:at] + rng.choice("aex2") + name[at + 1 :]]
    return rng.choice([f for f in [*forms, name + "2", name + "s", name[:-1]] if f] or [name + "x"])


@pytest.mark.parametrize("form", PROGRAMS)
def test_no_safe_edit_makes_another_program(form: str) -> None:
    """Words of a program that verifies become names of all tables, right and misspelled: a safe edit keeps every word."""
    text, rng = PROGRAMS[form], random.Random(form)
    _, left = mended(form, text)
    assert not left.errors, [d.message for d in left]
    places = [m.span() for m in re.finditer(r"[A-Za-z_]\w*", text)]
    for name in names(form):
        for written in (name, misspelled(name, rng)):
            start, end = rng.choice(places)
            broken = text[:start] + written + text[end:]
            after, _ = mended(form, broken)
            kept = words(re.sub(r"(tensor|tile)<[^>]*>", "", after)) == words(re.sub(r"(tensor|tile)<[^>]*>", "", broken))
            assert kept, f"{text[start:end]} -> {written}: {after}"


@pytest.mark.parametrize(
    ("form", "broken", "after"),
    [
        ("ptir", PTIR.replace("log(", "Log("), PTIR),
        ("ptir", PTIR.replace("-> tensor<f32, 2x1>", "-> tensor<f32, 2x7>"), PTIR),
        ("ptir", PTIR.replace("  return %e\n}\n", "  return %e\n"), PTIR),
        ("tiny", TINY.replace('"EXP2"', "'EXP2'"), TINY),
        ("tiny", TINY.replace('"id": "b", ', '"id": "b" '), TINY),
        ("mind", MIND.replace("Exp(", "exp("), MIND),
    ],
)
def test_spelling_is_mended(form: str, broken: str, after: str) -> None:
    assert broken != after
    found, left = mended(form, broken)
    assert (found, left.errors) == (after, 0)


@pytest.mark.parametrize(
    ("form", "broken"),
    [
        ("ptir", PTIR.replace("log(", "logg(")),
        ("ptir", PTIR.replace("reduce_max(", "reduce_maxx(")),
        ("ptir", PTIR.replace("%k)", "%K)")),
        ("ptir", PTIR.replace("keepdims", "keepdim")),
        ("ptir", PTIR.replace("i1", "i2")),
        ("tiny", TINY.replace('"EXP2"', '"EXPP2"')),
        ("tiny", TINY.replace('["a", "b"]', '["A", "b"]')),
        ("mind", MIND.replace("Exp(", "Expp(")),
    ],
)
def test_a_guess_waits_for_unsafe(form: str, broken: str) -> None:
    found, left = mended(form, broken)
    assert found == broken and left.errors
    assert mended(form, broken, unsafe=True)[0] != broken


def test_reports_say_which_edits_are_safe() -> None:
    for text, safe in ((PTIR.replace("log(", "Log("), True), (PTIR.replace("log(", "logg("), False)):
        diagnostics = Diagnostics()
        reading.read(Source("case.ptir", text), diagnostics, Options(), "ptir")
        (error,) = [d for d in diagnostics if d.severity is Severity.ERROR]
        assert record(error)["fix"]["safe"] is safe  # type: ignore[index]
        (result,) = json.loads(sarif([error], "1"))["runs"][0]["results"]
        (fix,) = result["fixes"]
        assert fix["properties"] == {"safe": safe}
        (change,) = fix["artifactChanges"]
        assert [r["insertedContent"]["text"] for r in change["replacements"]] == ["log"]
        assert change["replacements"][0]["deletedRegion"]["startLine"] == 2


def test_edits_that_touch_wait() -> None:
    first, second, third = (Fix(Span(a, b), "x") for a, b in ((0, 2), (2, 3), (5, 6)))
    assert separate([first, second, third]) == [first, third]
