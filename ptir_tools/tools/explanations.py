"""The diagnostic codes of passes, engines and the command line, and the explanation of every code (`ptir explain`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ptir_tools.bridges.onnx.codes import EXPLAIN as ONNX
from ptir_tools.bridges.stablehlo.codes import EXPLAIN as STABLEHLO
from ptir_tools.convert.codes import EXPLAIN as TRANSLATION
from ptir_tools.core.dialect import Code
from ptir_tools.dialects import DIALECTS
from ptir_tools.dialects.sniff import EXPLAIN as FORMATS
from ptir_tools.plan.codes import EXPLAIN as PLANS

_FUNC = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {{\n  %y = {}(%x) -> tensor<f32, 2>{}\n  return %y\n}}\n".format
_TWICE = (
    "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %a = neg(%x) -> tensor<f32, 2>\n  %b = neg(%a) -> tensor<f32, 2>\n"
    "  %y = abs(%b) -> tensor<f32, 2>\n  return %y\n}\n"
)
_HINT = (
    "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {{\n  %a = {0}(%x) -> tensor<f32, 2>\n  %y = {0}(%a) -> tensor<f32, 2>\n"
    "  return %y\n  hint 0 ElementwiseDag Preferred inputs[%x] exports[%y] {{\n    %a = {0}(%x) -> tensor<f32, 2>\n"
    "    %y = {0}(%a) -> tensor<f32, 2>\n  }}\n}}\n"
).format
_CASE = (
    'description: "the opposite"\ncategory: runtime\nprofile: cpu\ninput:\n  ir_module: |\n'
    "    %0 = Input {{name=x}} : tensor<f32[2]>\n    %1 = Neg (%0)\n    outputs: %1\n{}"
).format
_RANK = "func @f(%x: tensor<f32, {0}>) -> tensor<f32, {0}> {{\n  return %x\n}}\n".format

EXPLAIN: tuple[Code, ...] = (
    Code(
        "NoFixpoint",
        "A bound stopped a pass before it reached a fixpoint. The bounds are `--max-iterations` and the option `max-iterations` "
        "of a pass (rewrites and folds of a greedy driver), and `n` of `fixpoint`. The program verifies, but may not be "
        "canonical.\n\nThe examples are for `ptir opt --max-iterations 1`.",
        _TWICE,
        _FUNC("abs", ""),
        "ptir",
    ),
    Code("PluginError", "A plug-in (`--load`, or a package's entry point) raised an error. The message names its file and line."),
    Code(
        "BrokenRule",
        "A rule of a pass raised an exception. That is a fault of the toolkit (please report it), or of the plug-in that the "
        "message names. The other rules ran, and the program verifies. With `--expensive-checks` the command fails instead, "
        "with a reproducer.",
    ),
    Code(
        "HintDropped",
        "A fusion hint was dropped: a pass changed its ops, or the target of a translation has no hints. The "
        "program computes the same. It is a warning if the hint's policy is `Required`, else a note.\n\n"
        "The examples are for `ptir opt -v`.",
        _HINT("neg"),
        _HINT("exp"),
        "ptir",
    ),
    Code(
        "CheckFailed",
        "`--check` (in `ptir diff`, `--run`) ran the program before and after on random inputs, and the outputs differ by more "
        "than rounding. The message names the programs, the inputs and the commands that run them again. From `ptir opt` "
        "and `ptir translate` this is a fault of the toolkit or of a plug-in. With `--check-with` it also means that the command "
        "does not build the host program, or that the program fails. The code also means, with `--compare` too, that "
        "nothing was compared, because no element of any output has a bound.\n\n"
        "The examples are for `ptir diff --run` against `%y = exp(%x)`.",
        _FUNC("tanh", ""),
        _FUNC("exp", ""),
        "ptir",
    ),
    Code(
        "OutputMismatch",
        "An output of `ptir run` is not what `--expect` has, or what the engine of `--compare` gives. The first element "
        "that differs is reported, and the smallest tolerance that would have passed.\n\n"
        "The examples are for `--input x=1 --expect` of an array of ones.",
        _FUNC("exp", ""),
        _FUNC("abs", ""),
        "ptir",
    ),
    Code(
        "NonFinite",
        "With `--check-nan`, an op computed a NaN or an infinity from finite values, and the run stopped there. Or an input "
        "has a NaN. An infinity in an input is a warning.\n\nThe examples are for `ptir run --input x=0 --check-nan`.",
        _FUNC("log", ""),
        _FUNC("exp", ""),
        "ptir",
    ),
    Code(
        "ReferenceEngine",
        "No `--engine` is given, and the fast engines cannot run the program, so the reference engine runs it, op by op. The "
        "message says why.",
    ),
    Code(
        "NotFormatted",
        "`ptir fmt --check` with a format of diagnostics for programs: `ptir fmt` would change this line first.",
        _FUNC("exp", "").replace("  %y", "    %y"),
        _FUNC("exp", ""),
        "ptir",
    ),
    Code(
        "TestFailed",
        "`ptir lit`: a check of a test does not hold for the output, or the exit code is not the expected one. Or the output is "
        "not that of the file NAME.out or NAME.err.\n\nThe examples are for `ptir lit`.",
        _FUNC("exp", "").replace("func", "// RUN: ptir opt %s\n// CHECK: tanh\nfunc", 1),
        _FUNC("exp", "").replace("func", "// RUN: ptir opt %s\n// CHECK: exp\nfunc", 1),
        "ptir",
    ),
    Code(
        "InvalidTest",
        "`ptir lit`: the file says nothing to run, runs what a test may not run, or a check has no valid pattern. Only `ptir` "
        "and `filecheck %s` run, without a shell.\n\nThe examples are for `ptir lit`.",
        _FUNC("exp", "").replace("func", "// RUN: cat %s\nfunc", 1),
        _FUNC("exp", "").replace("func", "// RUN: ptir verify %s\nfunc", 1),
        "ptir",
    ),
    Code(
        "MissingDiagnostic",
        "`ptir verify --verify-diagnostics` found no diagnostic that an `expected-…` comment describes.",
        _FUNC("exp", "  // expected-error {{UndefinedValue}}"),
        _FUNC("exp", ""),
        "ptir",
    ),
    Code(
        "UnexpectedDiagnostic",
        "`ptir verify --verify-diagnostics` found a diagnostic that no `expected-…` comment describes.",
        _FUNC("exp", "").replace("(%x) ->", "(%z) ->", 1),
        _FUNC("exp", "  // expected-error {{UndefinedValue}}").replace("(%x) ->", "(%z) ->", 1),
        "ptir",
    ),
    Code(
        "InvalidExpectation",
        "The text between the braces of an `expected-…` comment is not a regular expression.",
        _FUNC("exp", "  // expected-error {{a(b}}").replace("(%x) ->", "(%z) ->", 1),
        _FUNC("exp", "  // expected-error {{UndefinedValue: .*}}").replace("(%x) ->", "(%z) ->", 1),
        "ptir",
    ),
    Code(
        "InvalidCase",
        "A file of conformance cases does not have the form in docs/conformance.md. An unknown key is a warning.\n\n"
        "The examples are for `ptir conform mind`.",
        _CASE("expected:\n  status: fine\n"),
        _CASE("expected:\n  status: success\n"),
    ),
    Code(
        "UnknownSymbol",
        "`--bind` names a symbol that the program does not have. It has no effect. The message lists the program's symbols.\n\n"
        "The examples are for `ptir verify --strict --bind N=2`.",
        _RANK("?M"),
        _RANK("?N"),
        "ptir",
    ),
    Code(
        "LimitExceeded",
        "A limit was hit: of the reader, of a run, `--timeout`, `--max-memory` or `plan --limit`. If an option raises the "
        "limit, the message names it. Exit code 3.",
        _RANK("x".join("1" * 65)),
        _RANK("x".join("1" * 64)),
        "ptir",
    ),
    Code(
        "UsageError",
        "The command line is wrong: an option, a pass or an input is unknown, missing or of the wrong kind. Exit code 2.",
    ),
    Code("IOError", "A file cannot be read or written. Exit code 4."),
    Code(
        "InternalError",
        "The fault is in the toolkit, not in the program. The message names a file that reproduces it. Exit code 70.",
    ),
    Code("Interrupted", "The command was interrupted, for example by Ctrl-C. Exit code 130."),
)


def all_codes() -> list[tuple[str, Code]]:
    """(owner, code) of every code that can be explained, by owner and name; `any` owns the codes of all formats."""
    rows = [("any", c) for c in (*FORMATS, *ONNX, *STABLEHLO, *TRANSLATION, *PLANS, *EXPLAIN)]
    rows += [(name, c) for name, dialect in DIALECTS.items() for c in dialect.explain()]
    return sorted(rows, key=lambda row: (row[0], row[1].code))


def page(owner: str, code: Code) -> str:
    """The explanation as text."""
    return "\n".join(_lines(owner, code)) + "\n"


def _lines(owner: str, code: Code) -> Iterator[str]:
    yield f"{code.code} ({owner})"
    yield ""
    for paragraph in code.meaning.split("\n\n"):
        yield from textwrap.wrap(paragraph, 96)
    for title, program in (("Wrong", code.wrong), ("Right", code.right)):
        if program:
            yield from ("", f"{title}:", "", textwrap.indent(program.strip("\n"), "    "))


def markdown_page(known: list[tuple[str, Code]]) -> Iterator[str]:
    """docs/codes.md."""
    yield "# Diagnostic codes\n\nMade by `ptir explain --markdown`; a test compares. Do not edit.\n"
    owner = ""
    for each, code in known:
        if each != owner:
            owner = each
            yield f"\n## {'All formats' if owner == 'any' else owner}\n"
        yield f"\n### {code.code}\n\n{code.meaning}\n"
        for title, program in (("Wrong", code.wrong), ("Right", code.right)):
            if program:
                yield f"\n{title}:\n\n{textwrap.indent(program.strip(chr(10)), '    ')}\n"


def first_sentence(text: str) -> str:
    """The first sentence of `text`, without its full stop."""
    return " ".join(text.split()).partition(". ")[0].rstrip(".")
