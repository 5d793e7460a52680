"""What Python shows of programs, plans and what is compiled."""

import importlib.util
import re
from typing import Any

import pytest

import ptir_tools as ptir
from ptir_tools.dialects import DIALECTS, FORMATS

NEEDS = {"onnx": "onnx", "stablehlo": "jax", "stablehlo-bytecode": "jax"}  # the package that writes the format
TEXT = "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = exp(%x) -> tensor<f32, 2>\n  return %y\n}\n"


def test_what_is_shown_of_a_program_is_one_line_and_a_notebook_shows_its_text() -> None:
    program = ptir.read("func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = exp(%x) -> tensor<f32, 2>\n  return %y\n}\n")
    assert repr(program) == "<ptir program f: 1 functions, 0 regions, 1 ops>"
    assert repr(program.main) == "<function f: 1 ops>" and repr(program.main.body[0]) == "<ptir.exp %y>"
    assert repr(ptir.plan(program)) == "<plan: f 0 bytes>"
    assert repr(ptir.compile(program)) == f"<compiled {program!r}>"
    assert "%y = exp(%x) -&gt; tensor&lt;f32, 2&gt;" in program._repr_html_()


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize("target", [name for name, entry in FORMATS.items() if entry.written])
def test_what_the_command_line_translates_to_is_made_from_python_by_the_call_that_a_message_names(
    source: str, target: str
) -> None:
    """`translate` takes an IR and `write` a format of the program's own; the message of each names what does the rest.

    Without the package that writes the format, the message names the extra that installs it.
    """
    there = target not in NEEDS or importlib.util.find_spec(NEEDS[target])
    program = ptir.translate(ptir.read(TEXT), source)
    names = {"program": program, "write": ptir.write, "translate": ptir.translate, "to_onnx": ptir.to_onnx}
    for call in (ptir.write, ptir.translate):
        try:
            assert call(program, target)
        except ptir.Rejected as rejected:  # PTO is translated to no other, and mic@1 lacks ops
            no_way = source == "pto" and "no conversion leads from pto to" in str(rejected)
            assert no_way or (target == "mic" and "mic@1 has no" in str(rejected))
        except ptir.UsageError as error:
            found = re.search("`((?:to|write)[^`]*[)])`", str(error))
            if found and there:
                try:
                    assert eval(found[1], names)
                except ptir.Rejected as rejected:
                    assert target == "mic" and "mic@1 has no" in str(rejected)
            elif not found:
                no_way = source == "pto" and "no conversion leads from pto to" in str(error)
                assert (
                    no_way or "can be read, not written" in str(error) or (not there and "pip install 'ptir-tools[" in str(error))
                )


def test_an_ir_or_format_that_there_is_not_is_wrong_usage() -> None:
    with pytest.raises(ptir.UsageError, match="no IR `tyni`"):
        ptir.translate(ptir.read(TEXT), "tyni")
    with pytest.raises(ptir.UsageError, match="no format `pto-ass`; did you mean `pto-as`"):
        ptir.write(ptir.read(TEXT), "pto-ass")


def test_an_option_that_there_is_not_is_wrong_usage() -> None:
    program = ptir.read(TEXT)
    calls: dict[str, Any] = {
        "no option `float`; did you mean `floats`": (ptir.optimize, {"float": "fast"}),
        "no option `algn`; did you mean `align`": (ptir.plan, {"algn": 8}),
        "no option `threds`; did you mean `threads`": (ptir.compile, {"threds": 2}),
        "no engine `nativ`; did you mean `native`": (ptir.compile, {"engine": "nativ"}),
    }
    for message, (call, options) in calls.items():
        with pytest.raises(ptir.UsageError, match=message):
            call(program, **options)


def test_statistics_and_differences() -> None:
    """Names make no difference; a program of another IR is none to compare with."""
    program = ptir.read(TEXT)
    assert sum(row.ops for row in ptir.stats(program)) == len(program.main.body)
    assert ptir.diff(program, ptir.read(TEXT.replace("%x", "%other"))) == ""
    changed = ptir.diff(program, ptir.read(TEXT.replace("exp", "log"))).splitlines()
    assert [line[0] for line in changed if "exp" in line or "log" in line] == ["-", "+"]
    with pytest.raises(ptir.UsageError, match="one is a ptir program, the other tiny"):
        ptir.diff(program, ptir.translate(program, "tiny"))
