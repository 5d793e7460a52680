"""What Python shows of programs, plans and what is compiled."""

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools import api
from ptir_tools.core.dialect import OPTIONS, Options, Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.types import tensor
from ptir_tools.dialects import DIALECTS, FORMATS
from ptir_tools.engines import ENGINES

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


def test_a_notebook_shows_plans_results_and_comparisons() -> None:
    program = ptir.read(TEXT)
    root = ElementTree.fromstring(ptir.plan(program)._repr_html_())
    assert root.tag.endswith("svg")
    results = ptir.run(program, {"x": np.array([0, 1], np.float32)})
    assert results == {"y": results["y"]}
    shown = results._repr_html_()  # type: ignore[attr-defined]
    assert "<td>y</td><td>float32</td><td>2</td><td>[1.     2.7183]</td>" in shown
    ElementTree.fromstring(shown)
    report = ptir.compare(program, ptir.read(TEXT.replace("exp", "tanh")))
    assert repr(report).startswith("<FAIL: largest error")
    assert report.first is not None and report.first.label.name == "y"
    assert "<td>differs</td>" in ElementTree.tostring(ElementTree.fromstring(f"<a>{report._repr_html_()}</a>"), "unicode")


def test_programs_of_two_irs_are_compared() -> None:
    program = ptir.read(TEXT)
    assert repr(ptir.compare(program, ptir.translate(program, "mind"))).startswith("<PASS: ")
    with pytest.raises(ptir.UsageError, match="no form in PTIR"):
        ptir.compare(program, ptir.translate(program, "pto", target="a3"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32"])
def test_a_program_is_a_function_of_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    name = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int32": "si32"}[dtype]
    text = TEXT.replace("f32", name).replace("exp", "neg")
    double = ptir.to_torch(ptir.read(text))
    x = torch.tensor([1.5, -2.0]).to(getattr(torch, dtype))
    assert torch.equal(double(x), -x) and double(x).dtype is x.dtype
    with pytest.raises(ptir.UsageError, match="no gradients"):
        ptir.to_torch(ptir.read(TEXT))(torch.ones(2, requires_grad=True))


def test_a_wrong_option_is_told_with_the_nearest() -> None:
    program, inputs = ptir.read(TEXT), {"x": np.zeros(2, np.float32)}
    calls: list[tuple[Any, str]] = [
        (lambda: ptir.run(program, inputs, engin="numpy"), "no option `engin`; did you mean `engine`?"),  # type: ignore[call-arg]
        (lambda: ptir.run(program, inputs, engine="nump"), "no engine `nump`; did you mean `numpy`?"),  # type: ignore[arg-type]
        (lambda: ptir.read(TEXT, hazard=False), "no option `hazard`; did you mean `hazards`?"),  # type: ignore[call-arg]
        (lambda: ptir.verify(program, profil="strict"), "no option `profil`; did you mean `profile`?"),  # type: ignore[call-arg]
    ]
    for call, message in calls:
        with pytest.raises(ptir.UsageError, match=re.escape(message)):
            call()


def test_types_name_the_engines_and_formats_that_there_are() -> None:
    assert get_args(api.Engine) == ("auto", *ENGINES)
    assert {*get_args(api.Format)} == {*FORMATS}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (TEXT.replace("exp(", "expp("), "UnknownOp"),  # while it is read
        (TEXT.replace("-> tensor<f32, 2>\n", "-> tensor<f32, 3>\n"), "ResultTypeMismatch"),  # when it is verified
        (TEXT.replace("return %y", "return %z"), "UndefinedValue"),
        ("hello\n", "UnknownFormat"),
        (b"\xff\n", "InvalidEncoding"),
    ],
)
def test_a_wrong_program_is_rejected_with_its_diagnostics(text: str | bytes, code: str, tmp_path: Path) -> None:
    """As text, and as a file. One that is wrong in one place has one error."""
    (path := tmp_path / "x").write_bytes(text if isinstance(text, bytes) else text.encode())
    for given in (path, *([text] if isinstance(text, str) else [])):
        with pytest.raises(ptir.Rejected) as caught:
            ptir.read(given)
        assert [d.code for d in caught.value.diagnostics] == [code]


def test_a_program_is_verified_when_it_is_read() -> None:
    """So the types that its text leaves out are there, and a program that was changed by hand is verified again."""
    program = ptir.read(TEXT)
    assert ptir.verify(program) == ()
    program.main.body[0].result.type = tensor(F32, (3,))
    with pytest.raises(ptir.Rejected):
        ptir.verify(program)


# What a call means that leaves an argument out.
DEFAULTS: dict[str, dict[str, object]] = {
    "compare": {"bind": None, "seed": 0, "rtol": None, "atol": None}, "compile": {"bind": None, "reuse": False},
    "from_onnx": {"constants": None, "bind": None, "shapes": None, "given": (), "from_values": (), "to_values": ()},
    "from_torch": {"dynamic": None, "bind": None, "shapes": None}, "optimize": {"pipeline": None}, "plan": {"bind": None},
    "read": {"format": None, "bind": None, "shapes": None}, "run": {"bind": None}, "to_jax": {"seed": 0},
    "to_onnx": {"opset": None, "lossy": False}, "to_torch": {"bind": None}, "write": {"format": None, "weights": None},
}  # fmt: skip


def test_what_is_left_out_has_its_default() -> None:
    functions = {n: f for n, f in vars(api).items() if inspect.isfunction(f) and f.__module__ == api.__name__ and n[0] != "_"}
    found = {n: {k: p.default for k, p in inspect.signature(f).parameters.items()} for n, f in functions.items()}
    found = {n: {k: v for k, v in own.items() if v is not inspect.Parameter.empty} for n, own in found.items()}
    assert {n: own for n, own in found.items() if own} == DEFAULTS


SYMBOLS = "func @f(%x: tensor<f32, ?Nx?M>) -> tensor<f32, ?Nx?M> {\n  %y = exp(%x) -> tensor<f32, ?Nx?M>\n  return %y\n}\n"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "?Nx?M"), ({"bind": {"N": 2}}, "2x?M"), ({"shapes": {"x": (None, 3)}}, "?Nx3"),
        ({"bind": {"N": 2}, "shapes": {"x": (2, 3)}}, "2x3"),
    ],
)  # fmt: skip
def test_symbols_get_the_numbers_that_are_given(given: dict[str, Any], wanted: str) -> None:
    assert str(ptir.read(SYMBOLS, **given).main.params[0].type) == f"tensor<f32, {wanted}>"


@pytest.mark.parametrize("field", ["constants", "bind", "shapes", "given", "from_values", "to_values"])
def test_a_model_is_read_with_what_is_given(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {
        "constants": {"c": 1},
        "bind": {"N": 2},
        "shapes": {"x": (1,)},
        "given": ("g",),
        "from_values": ("a",),
        "to_values": ("b",),
    }
    known = {option.name: option for option in OPTIONS.values()}
    names = {"constants": "placeholders"}
    for chosen in (field, None):
        seen: list[Options] = []

        def program(model: object, found: object, options: Options, seen: list[Options] = seen) -> Program:
            seen.append(options)
            return ptir.read(SYMBOLS)

        monkeypatch.setattr(api.onnx_format, "program", program)
        ptir.from_onnx("x", **({} if chosen is None else {field: value[field]}))  # type: ignore[arg-type]
        for name in value:
            found = seen[0][known[names.get(name, name)]]
            assert found == value[name] if name == chosen else not found
