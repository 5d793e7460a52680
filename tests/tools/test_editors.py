"""The files for editors are those that the op tables give, and they color what they are made for."""

from __future__ import annotations

import json
import re

import pytest

from ptir_tools.dialects import load_dialect
from ptir_tools.tools.textmate import colored, grammar
from tests.conftest import ROOT, run_ptir

FOLDER = ROOT / "editors" / "vscode"
SAMPLES = {
    "ptir": ("%y = dot_general(%x, %w) contract_lhs[1] -> tensor<f32, 2x?N> // %x", "support.function", "dot_general"),
    "pto": ("%t = pto.tile.load %a[%c0] : pto.memref<32xf32>, tile<32xf32>", "support.function", "pto.tile.load"),
    "mind": ("%1 = MatMul (%0, %0) {axes=[1]} : tensor<f32[3]>  # a", "support.function", "MatMul"),
}


@pytest.mark.parametrize("form", colored())
def test_grammars_are_fresh(form: str, bless: bool) -> None:
    path = FOLDER / "syntaxes" / f"{form}.tmLanguage.json"
    made = json.dumps(grammar(form), indent=2) + "\n"
    if bless:
        path.write_text(made, "utf-8")
    assert path.read_text("utf-8") == made, "pytest --bless rewrites it"


@pytest.mark.parametrize("form", colored())
def test_grammars_name_what_they_color(form: str) -> None:
    line, kind, word = SAMPLES[form]
    rules = {rule["name"]: rule["match"] for rule in grammar(form)["patterns"] if "match" in rule}
    assert re.findall(rules[f"{kind}.{form}"], line) == [word]
    assert (
        "%x" in re.findall(rules[f"variable.other.{form}"], line + " %x")
        and "f32" in re.search(rules[f"storage.type.{form}"].partition(")|")[2], line)[0]
    )
    for name in load_dialect(form).ops:
        assert re.search(rules[f"support.function.{form}"], f" {'pto.' if form == 'pto' else ''}{name} "), name


def test_the_extension_names_files_that_are_there() -> None:
    about = json.loads((FOLDER / "package.json").read_text())
    named = [about["main"], *(g["path"] for g in about["contributes"]["grammars"])]
    named += [language["configuration"] for language in about["contributes"]["languages"]]
    assert all((FOLDER / name).is_file() for name in named)


def test_hooks_name_commands_that_there_are() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    for entry in re.findall(r"entry: ptir (\w+)(.*)", text):
        assert run_ptir(entry[0], *entry[1].split(), "--help").status == 0


def test_findings_annotate_a_change_on_github() -> None:
    ran = run_ptir("verify", "--diagnostics", "github", "testdata/verify/mistakes/p02_undef.ptir")
    assert ran.status == 1 and ran.text == (
        "::error file=testdata/verify/mistakes/p02_undef.ptir,line=3,endLine=3,col=12,endColumn=15,title=UndefinedValue::"
        "%25sx is not defined here%0Ahelp: did you mean `%25xs`?\n"
    ).replace("line=3,endLine=3,col=12,endColumn=15", "line=3,col=12,endLine=3,endColumn=15")
