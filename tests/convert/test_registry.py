"""The registry of conversions, and what a target allows."""

import pytest

from ptir_tools import convert
from ptir_tools.convert import ConversionTarget, get_conversion_target, register_conversion_target, route, translate
from ptir_tools.convert.codes import EXPLAIN
from ptir_tools.convert.legality import Legality, check_program_legality, entry_point_name, walk_program
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32
from ptir_tools.core.source import Source
from ptir_tools.core.types import sym, tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.text.format import FORMAT
from tests.mind.programs import good

TEXT = "%0 = Input {name=x} : tensor<f32[2]>\n%1 = ConstI64(3)\n%2 = Neg (%0)\n%3 = Neg (%1)\noutputs: %2, %3\n"


def test_known_targets() -> None:
    assert get_conversion_target("ptir", "mind") is not None and get_conversion_target("mind") is not None
    assert get_conversion_target("nowhere") is None
    assert route("mind", "mind") == []
    assert [(s.source, s.target) for s in route("tiny", "mind") or []] == [("tiny", "ptir"), ("ptir", "mind")]
    assert route("mind", "nowhere") is None


def test_a_target_of_ones_own(monkeypatch) -> None:
    monkeypatch.setattr(convert, "_TARGETS", dict(convert._TARGETS))
    legality = Legality(allowed_ops=frozenset({"neg"}), allowed_dtypes=frozenset({F32}))
    mine = ConversionTarget("ptir", "mine", lambda program, diagnostics, options: program, legality)
    register_conversion_target(mine)
    with pytest.raises(ValueError, match="already"):
        register_conversion_target(mine)
    diagnostics = Diagnostics()
    assert translate(good(TEXT), "mine", diagnostics) is None
    assert [d.message for d in diagnostics] == [
        "dtype si64 is not allowed",
        "ConstI64: operation constant is not allowed",
        "ConstI64: dtype si64 is not allowed",
        "Neg: dtype si64 is not allowed",
    ]
    assert {d.code for d in diagnostics} == {"NotTranslatable"}
    allowed = "%0 = Input {name=x} : tensor<f32[2]>\n%2 = Neg (%0)\noutputs: %2\n"
    assert translate(good(allowed), "mine", diagnostics) is not None


def test_legality_names_place_and_reason() -> None:
    program = good(TEXT)
    program.main.params[0].type = tensor(F32, (sym("N"),))
    found = check_program_legality(program, Legality(allow_dynamic_dims=False))
    assert [(d.stage, d.block, d.index) for d in found] == [("legalize", "main", None), ("legalize", "main", 1)]
    assert "dynamic dimensions" in found[0].message
    assert check_program_legality(program, Legality()) == []


def test_walk() -> None:
    assert [(b.name, i, op.defn.short) for b, i, op in walk_program(good(TEXT))] == [
        ("main", 0, "ConstI64"),
        ("main", 1, "Neg"),
        ("main", 2, "Neg"),
    ]


@pytest.mark.parametrize(("entry", "want"), [("main", "main"), ("a.b", "a_b"), ("1st", "_1st"), ("", "entry")])
def test_entry_point_names(entry, want) -> None:
    assert entry_point_name(entry, "0123456789abcdef0123") == f"{want}__0123456789abcdef"


@pytest.mark.parametrize("entry", EXPLAIN, ids=lambda c: c.code)
def test_every_code_of_translation_is_provoked(entry) -> None:
    for text, wanted in ((entry.wrong, [entry.code]), (entry.right, [])):
        diagnostics = Diagnostics(Source("t.ptir", text))
        program = FORMAT.read(diagnostics.source, diagnostics, Options())
        assert program is not None and verify(program, diagnostics)
        translate(program, "pto" if entry.code == "ConstantsLeft" else "mind", diagnostics)
        assert [d.code for d in diagnostics] == wanted
