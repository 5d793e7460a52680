"""The files for editors are those that the op tables give, and they color what they are made for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    named = [
        about["scripts"]["bundle"].split()[1],
        about["icon"],
        "README.md",
        "LICENSE",
        *(g["path"] for g in about["contributes"]["grammars"]),
    ]
    named += [language["configuration"] for language in about["contributes"]["languages"]]
    assert all((FOLDER / name).is_file() for name in named)
    assert about["contributes"]["configuration"]["properties"]["ptir.command"]["scope"] == "machine"


def test_hooks_name_commands_that_there_are() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    for entry in re.findall(r"entry: ptir (\w+)(.*)", text):
        assert run_ptir(entry[0], *entry[1].split(), "--help").status == 0


def documented(heading: str) -> Any:
    """The YAML below a heading of the page about editors."""
    section = (ROOT / "docs" / "editors.md").read_text("utf-8").partition(f"\n## {heading}\n")[2]
    return yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])


def test_the_hooks_of_the_page_format_and_verify(tmp_path: Path) -> None:
    """Each is run as pre-commit runs a hook: with the names of the files that it is for."""
    broken, tidy = tmp_path / "broken.ptir", tmp_path / "tidy.mind"
    broken.write_text("func @f(%x: tensor<f32, 4>) -> tensor<f32, 3> {\n%y = exp(%x) -> tensor<f32, 3>\nreturn %y\n}\n")
    shutil.copy(ROOT / "testdata" / "mind" / "01_add_tool_style.mind.ir", tidy)
    (tmp_path / "notes.md").write_text("%x")
    status = {}
    for hook in documented("pre-commit")["repos"][0]["hooks"]:
        names = [str(p) for p in sorted(tmp_path.iterdir()) if re.search(hook["files"], p.name)]
        assert names == [str(broken), str(tidy)] and hook["language"] == "system"
        command = hook["entry"].split()
        assert command[0] == "ptir"
        status[hook["id"]] = run_ptir(*command[1:], *names).status
    assert status == {"ptir-fmt": 0, "ptir-verify": 1}
    assert run_ptir("fmt", "--check", tidy).status == 0


def test_the_workflow_of_the_page_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "programs").mkdir()
    shutil.copy(ROOT / "testdata" / "plan" / "softmax.ptir", tmp_path / "programs")
    assert run_ptir("fmt", "--in-place", "programs").status == 0
    steps = [step["run"] for job in documented("GitHub")["jobs"].values() for step in job["steps"] if "run" in step]
    assert steps[0] == "pip install ptir-tools"
    runs = [step.split()[1:] for step in steps[1:]]
    assert [run_ptir(*run).status for run in runs] == [0, 0]
    shutil.copy(ROOT / "testdata" / "verify" / "mistakes" / "p02_undef.ptir", tmp_path / "programs")
    found = [run_ptir(*run) for run in runs]
    assert found[-1].status == 1 and found[-1].text.startswith("::error file=programs/p02_undef.ptir,line=3")


def test_findings_annotate_a_change_on_github() -> None:
    ran = run_ptir("verify", "--diagnostics", "github", "testdata/verify/mistakes/p02_undef.ptir")
    assert ran.status == 1 and ran.text == (
        "::error file=testdata/verify/mistakes/p02_undef.ptir,line=3,endLine=3,col=12,endColumn=15,title=UndefinedValue::"
        "%25sx is not defined here%0Ahelp: did you mean `%25xs`?\n"
    ).replace("line=3,endLine=3,col=12,endColumn=15", "line=3,col=12,endLine=3,endColumn=15")


WRONG = "func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {\n%y = exp(%q) -> tensor<f32, 4>\nreturn %y\n}\n"
NVIM, EMACS = shutil.which("nvim"), shutil.which("emacs")


def snippet(heading: str, language: str, number: int = 0) -> str:
    """A block of code below a heading of the page about editors."""
    section = (ROOT / "docs" / "editors.md").read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[number]


def edited(command: list[str], folder: Path) -> str:
    """What an editor prints about a file in error."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    (folder / "wrong.ptir").write_text(WRONG)
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=120, check=False)
    return done.stdout + done.stderr


def test_the_languages_of_helix_are_those_of_the_extension() -> None:
    """Helix is no package of a registry: its settings are compared with those of VS Code."""
    found = tomllib.loads(snippet("Helix", "toml"))
    server = found["language-server"]["ptir"]
    assert run_ptir(*server["args"], "--help").status == 0 and server["command"] == "ptir"
    named = {form: language for language in found["language"] for form in language["file-types"]}
    about = json.loads((FOLDER / "package.json").read_text())["contributes"]
    assert sorted(named) == sorted(language["id"] for language in about["languages"])
    scopes = {grammar["language"]: grammar["scopeName"] for grammar in about["grammars"]}
    for language in about["languages"]:
        mark = json.loads((FOLDER / language["configuration"]).read_text())["comments"]["lineComment"]
        set_up = named[language["id"]]
        assert set_up["comment-token"] == mark and set_up["language-servers"] == ["ptir"]
        assert set_up["scope"] == scopes[set_up["name"]]


@pytest.mark.slow
@pytest.mark.skipif(NVIM is None, reason="nvim is not installed")
def test_neovim_shows_diagnostics_and_formats(tmp_path: Path) -> None:
    pytest.importorskip("pygls")
    assert NVIM is not None
    version = re.search(r"v0\.(\d+)", subprocess.run([NVIM, "--version"], capture_output=True, text=True, check=True).stdout)
    assert version is not None
    (tmp_path / "init.lua").write_text(snippet("Neovim", "lua", int(int(version[1]) < 11)))
    (tmp_path / "probe.lua").write_text(
        "vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 100)\n"
        'for _, d in ipairs(vim.diagnostic.get(0)) do io.write(d.lnum + 1, ": ", d.message, "\\n") end\n'
        "if vim.lsp.buf.format then vim.lsp.buf.format({ timeout_ms = 20000 }) else vim.lsp.buf.formatting_sync({}, 20000) end\n"
        'io.write(vim.bo.filetype, "\\n", table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\\n"), "\\n")\n'
    )
    said = edited([NVIM, "--headless", "-u", "init.lua", "wrong.ptir", "-c", "luafile probe.lua", "-c", "qa!"], tmp_path)
    assert "2: %q is not defined here" in said and "ptir\nfunc @f(%x" in said
    assert "\n  %y = exp(%q) -> tensor<f32, 4>\n  return %y\n" in said


@pytest.mark.slow
@pytest.mark.skipif(EMACS is None, reason="emacs is not installed")
def test_emacs_shows_diagnostics_and_formats(tmp_path: Path) -> None:
    pytest.importorskip("pygls")
    assert EMACS is not None
    (tmp_path / "probe.el").write_text(
        '(package-initialize)\n(unless (require \'eglot nil t) (princ "no eglot\\n") (kill-emacs))\n'
        + snippet("Emacs", "elisp")
        + '(setq project-find-functions nil)\n(find-file "wrong.ptir")\n(run-hooks \'post-command-hook)\n'
        "(let ((n 0)) (while (and (< n 300) (not (flymake-diagnostics)))\n"
        "  (accept-process-output nil 0.2) (when (= (mod n 10) 0) (ignore-errors (flymake-start))) (setq n (1+ n))))\n"
        '(dolist (d (flymake-diagnostics)) (princ (format "%s: %s\\n" (line-number-at-pos (flymake-diagnostic-beg d))'
        " (flymake-diagnostic-text d))))\n(eglot-format-buffer)\n(princ (buffer-string))\n(set-buffer-modified-p nil)\n"
    )
    said = edited([EMACS, "--batch", "-l", "probe.el"], tmp_path)
    if "no eglot" in said:
        pytest.skip("emacs has no eglot")
    assert "%q is not defined here" in said
    assert "\n  %y = exp(%q) -> tensor<f32, 4>\n  return %y\n" in said
