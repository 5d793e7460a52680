"""gpt.rs's JSON: where errors are, what is lost, the bytes of serde_json."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.gptrs.forms import Malformed, read_dtype
from ptir_tools.dialects.ptir.gptrs.values import float_text
from ptir_tools.dialects.ptir.ops.scalars import FLOAT, Scalar
from tests.ptir.texts import DATA, clean, errors, read, write

PROGRAM = json.loads((DATA / "dump" / "d24_small_complete.json").read_text())


def changed(path: list[Any], value: Any) -> str:
    """The sample program with one node replaced (or dropped, when `value` is ...)."""
    program = copy.deepcopy(PROGRAM)
    node = program
    for step in path[:-1]:
        node = node[step]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return json.dumps(program, indent=1)


BODY = ["functions", 0, "body"]


@pytest.mark.parametrize(
    ("path", "value", "at", "code", "message"),
    [
        (["functions"], ..., "{", "SyntaxError", "a program has no field `functions`"),
        (["functions"], 3, "3", "SyntaxError", "`functions` is not an array"),
        (["regions"], ..., "{", "SyntaxError", "a program has no field `regions`"),
        (["spec_version"], "ptir.v0.3", "ptir.v0.3", "SpecVersionMismatch",
         "spec_version is ptir.v0.3, this is a reader of ptir.v0.4"),
        (["spec_version"], "", '""', "SpecVersionMismatch", "spec_version is empty, this is a reader of ptir.v0.4"),
        (["spec_version"], None, "{", "SpecVersionMismatch", "spec_version is missing, this is a reader of ptir.v0.4"),
        (["spec_version"], ..., "{", "SpecVersionMismatch", "spec_version is missing, this is a reader of ptir.v0.4"),
        (["entry"], "g", '"g"', "UnknownFunction", "the entry function @g is not in the program"),
        ([*BODY, 0, "op"], "Sellect", '"Sellect"', "UnknownOp", "there is no operation kind `Sellect`"),
        ([*BODY, 0, "op"], 5, "5", "SyntaxError", "an operation is a name or an object of one key"),
        ([*BODY, 0, "op", "DotGeneral", "batch_lhs"], [-1], "-1", "InvalidAttributeValue",
         "`batch_lhs` is an integer, not negative"),
        ([*BODY, 0, "op", "DotGeneral", "accum_dtype"], "f32", '"f32"', "DTypeNotSupported", "there is no dtype `f32`"),
        ([*BODY, 1, "op"], {"ElementwiseBinary": "Plus"}, '"Plus"', "UnknownOp",
         "ElementwiseBinary has no kind `Plus` (it has: Add, Sub, Mul, Div, Maximum, Minimum)"),
        ([*BODY, 1, "operands", 0], {"Valve": 1}, '{"Valve":1}', "SyntaxError", "an operand is Value, TupleElement or Literal"),
        ([*BODY, 1, "operands", 0], {"Value": 99}, "99", "UndefinedValue", "%99 is not defined here"),
        ([*BODY, 2, "op", "Constant", "bytes"], [256], "[256]", "SyntaxError",
         "`bytes` is not an array of integers from 0 to 255"),
        ([*BODY, 2, "op", "Constant", "bytes"], [0, True], "[0,true]", "SyntaxError",
         "`bytes` is not an array of integers from 0 to 255"),
        ([*BODY, 4, "id"], -1, "-1", "SyntaxError", "-1 is not a value id"),
        (["functions", 0, "parameter_ids", 1], 1 << 32, "4294967296", "SyntaxError", "4294967296 is not a value id"),
        ([*BODY, 3, "op", "Scan", "body_region"], 7, "{", "UnknownRegion", "there is no region ^r7"),
        ([*BODY, 4, "operands", 0, "TupleElement", "index"], 9, "{", "TupleIndexOutOfRange", "%5 has 2 elements, no [9]"),
        ([*BODY, 1, "output", "Tensor", "shape", "dims", 0], {"Static": -2}, '{"Static":-2}', "NegativeDimension",
         "-2 is a negative extent"),
        ([*BODY, 1, "id"], 0, "{", "RedefinedValue", "%0 is defined twice"),
        (["functions", 0, "parameter_ids"], [0], "{", "SyntaxError", "2 parameters, 1 parameter_ids"),
        (["regions", 0, "body"], [], "[", "RegionSignatureMismatch", "2 results, but the body has only 0 instructions"),
    ],
)  # fmt: skip
def test_errors_say_where(path: list[Any], value: Any, at: str, code: str, message: str) -> None:
    text = changed(path, value)
    _, diagnostics = read(text, "ptir-json")
    found = diagnostics.items[0]
    assert (found.code, found.message) == (code, message)
    assert found.span is not None
    shown = "".join(text[found.span.start : found.span.end].split())
    assert shown.startswith(at)


def test_several_errors_in_one_run() -> None:
    program = copy.deepcopy(PROGRAM)
    body = program["functions"][0]["body"]
    body[0]["op"] = "Nothing"
    body[1]["operands"][1] = {"Value": 77}
    body[4]["output"] = {"Tensor": {"dtype": "F99", "shape": {"dims": []}}}
    _, diagnostics = read(json.dumps(program), "ptir-json")
    assert [code for _, _, code, _ in errors(diagnostics)] == ["UnknownOp", "UndefinedValue", "DTypeNotSupported"]


def missing_fields(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in items:
        if isinstance(raw, dict):
            yield (*path, key)
        yield from missing_fields(value, (*path, key))


def test_a_missing_field_is_told_once() -> None:
    optional = {"hints", "bytes", "batch_lhs", "batch_rhs", "accum_dtype", "out_dtype"}
    for path in missing_fields(PROGRAM):
        program, diagnostics = read(changed(list(path), ...), "ptir-json")
        if program is not None:
            verify(program, diagnostics)
        assert len(errors(diagnostics)) == (path[-1] not in optional), (path, list(diagnostics))


def nodes(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ():
        yield (*path, key)
        yield from nodes(value, (*path, key))


@pytest.mark.parametrize("wrong", [None, "zz", 7.5, True], ids=repr)
def test_a_value_of_another_kind_is_told_once(wrong: Any) -> None:
    """Whatever stands in its place."""
    for path in nodes(PROGRAM):
        program, diagnostics = read(changed(list(path), wrong), "ptir-json")
        if program is not None:
            verify(program, diagnostics)
        assert len(errors(diagnostics)) <= 1, (path, list(diagnostics))


def test_a_dtype_of_other_case_is_the_one_meant() -> None:
    with pytest.raises(Malformed) as caught:
        read_dtype("f32")
    assert caught.value.instead == "F32"


def test_a_null_float_is_taken_for_minus_infinity_with_a_warning() -> None:
    program, diagnostics = read((DATA / "invalid" / "j03_pad_value_null.json").read_text(), "ptir-json")
    assert [(d.severity, d.code) for d in diagnostics] == [(Severity.WARNING, "LossyFloat")]
    assert program.main.body[0].attr("pad_value") == Scalar(FLOAT, float("-inf"))
    assert "pad_value[-inf]" in write(program)


def test_missing_bytes_are_a_missing_payload() -> None:
    program = clean(changed([*BODY, 2, "op", "Constant", "bytes"], None), "ptir-json")
    assert program.main.body[2].attrs[0].data is None
    assert "value[dense<?>]" in write(program)


def test_layer_norm_and_clamp_are_read() -> None:
    program, diagnostics = read((DATA / "invalid" / "j02_layer_norm_variant.json").read_text(), "ptir-json")
    assert errors(diagnostics) == []
    assert program.main.body[0].defn.short == "layer_norm"
    assert program.main.body[0].attr("epsilon") == 1e-5
    verify(program, diagnostics)
    assert [code for _, _, code, _ in errors(diagnostics)] == ["OperandCountMismatch"]


def test_optional_fields_may_be_missing_and_unit_variants_objects() -> None:
    clean(changed([*BODY, 0, "op", "DotGeneral", "accum_dtype"], ...), "ptir-json")
    clean(changed(["regions", 0, "body", 1, "op"], {"StopGradient": None}), "ptir-json")


def test_nested_tuples_have_a_limit() -> None:
    t: Any = {"Tuple": []}
    for _ in range(300):
        t = {"Tuple": [t]}
    with pytest.raises(LimitExceeded):
        read(changed(["functions", 0, "parameters", 0], t), "ptir-json")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0"), (1e-5, "0.00001"), (-1.5e-5, "-0.000015"), (1e-6, "1e-6"), (0.0001, "0.0001"), (1e15, "1000000000000000.0"),
     (1e16, "1e16"), (1.5e300, "1.5e300"), (-0.0, "-0.0"), (float("nan"), "null"), (float("inf"), "null")],
)  # fmt: skip
def test_floats_as_serde_json_prints_them(value: float, text: str) -> None:
    assert float_text(value) == text


def test_every_output_type_of_the_reader_has_a_source() -> None:
    """A program read from JSON locates its ops: the verifier's errors point into the JSON."""
    text = changed([*BODY, 1, "output", "Tensor", "shape", "dims", 0, "Static"], 5)
    program, diagnostics = read(text, "ptir-json")
    assert not verify(program, diagnostics)
    assert all(isinstance(d.where[1], int) and d.where[1] > 1 for d in diagnostics)
    assert isinstance(diagnostics, Diagnostics)


def test_an_inline_literal_has_the_bytes_of_its_type() -> None:
    spec = {"dtype": "F32", "shape": {"dims": [{"Static": 2}]}}
    text = changed([*BODY, 1, "operands", 0], {"Literal": {"spec": spec, "bytes": [0, 0, 0, 0]}})
    assert [(code, said) for _, _, code, said in errors(read(text, "ptir-json")[1])] == [
        ("LiteralSizeMismatch", "a literal of tensor<f32, 2> has 8 bytes, this one has 4")
    ]
