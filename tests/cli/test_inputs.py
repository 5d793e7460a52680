"""`ptir run --input NAME=SPEC`: every kind of SPEC, what is refused, and that each input has its own stream."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ptir_tools.core import arrayfiles
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.types import Dim, sym, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_dialect
from ptir_tools.tools.inputs import Inputs
from tests.conftest import Ran, run_ptir

DTYPES = {d.name: d for d in PTIR_DTYPES}


def identity(*params: tuple[str, str, tuple[Dim, ...]]) -> Program:
    """A program that gives back its parameters: (name, dtype, shape)."""
    program, builder = single_function(load_dialect("ptir"))
    builder.results(*(builder.param(tensor(DTYPES[dtype], shape), name) for name, dtype, shape in params))
    return program


def given(dtype: str, shape: tuple[Dim, ...], spec: str, **more: object) -> np.ndarray:
    """The array that a spec gives for one parameter `x`."""
    return Inputs((("x", spec),), **more).arrays(identity(("x", dtype, shape)))["x"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "shape", "spec", "expected"),
    [
        ("f32", (2, 2), "0.1", np.full((2, 2), np.float32(0.1))),
        ("f32", (), "-inf", np.float32(-np.inf)),
        ("f64", (3,), "[1, 2.5, nan]", np.array([1, 2.5, np.nan])),
        ("f32", (2, 2), "[[1, 2], [3, 4]]", np.array([[1, 2], [3, 4]], np.float32)),
        ("si8", (2,), "[-128, 127]", np.array([-128, 127], np.int8)),
        ("ui64", (1,), "[18446744073709551615]", np.array([2**64 - 1], np.uint64)),
        ("i1", (2,), "[true, 0]", np.array([True, False])),
        ("si4", (2,), "[-8, 7]", np.array([-8, 7], ml_dtypes.int4)),
        ("bf16", (), "0.1", np.array(0.1, ml_dtypes.bfloat16)),
        ("cf32", (), "2", np.complex64(2)),
        ("cf64", (2,), "[(1, -2.5), (inf, 0)]", np.array([1 - 2.5j, complex(np.inf, 0)])),
        ("f32", (), "16777217.000000001", np.float32(16777218)),  # above halfway, which float64 cannot tell
        ("si32", (2, 3), "iota", np.arange(6, dtype=np.int32).reshape(2, 3)),
        ("f16", (0,), "[]", np.zeros(0, np.float16)),
    ],
)
def test_text_values(dtype: str, shape: tuple[int, ...], spec: str, expected: np.ndarray) -> None:
    array = given(dtype, shape, spec)
    assert array.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(array.astype(np.complex128), np.asarray(expected).astype(np.complex128))


@pytest.mark.parametrize(
    ("dtype", "spec"),
    [
        ("si8", "128"), ("ui8", "-1"), ("si32", "1.5"), ("si4", "8"), ("i1", "2"), ("f16", "65520"), ("f32", "1e39"),
        ("f32", "true"), ("f32", "(1, 2)"), ("cf32", "(1, 1e39)"),
        ("fp8_e4m3", "1000"), ("f64", "1e999999"), ("si64", "9" * 30), ("f32", "hello"), ("f32", "[1, [2]]"),
        ("f32", "[1, 2"), ("f32", '["a"]'), ("f32", "{}"), ("f32", "[" * 100_000), ("f32", "random(1)"),
        ("si32", "random(3, 3)"), ("f32", "@nothing"),
    ],
)  # fmt: skip
def test_what_the_dtype_cannot_hold_is_refused(dtype: str, spec: str) -> None:
    with pytest.raises(UsageError):
        given(dtype, (1,), spec)


def test_random_between() -> None:
    drawn = given("f32", (1000,), "random(2, 3)", random=5)
    assert drawn.min() >= 2 and drawn.max() < 3 and drawn.std() > 0.2
    whole = given("si32", (1000,), "random(-3, 3)")
    assert set(np.unique(whole)) == {-3, -2, -1, 0, 1, 2}


def test_each_input_has_its_own_stream() -> None:
    program = identity(("a", "f32", (4,)), ("b", "f32", (4,)))
    both = Inputs(random=7).arrays(program)
    alone = Inputs((("a", "0"),), random=7).arrays(program)
    assert not np.array_equal(both["a"], both["b"])
    np.testing.assert_array_equal(both["b"], alone["b"])


@pytest.mark.parametrize("name", ["x", "%x", "1"])
def test_names_and_positions(name: str) -> None:
    found = Inputs(((name, "3"),)).arrays(identity(("0", "f32", ()), ("x", "f32", ())))
    assert list(found) == ["x"]


def test_a_value_id_is_written_with_a_percent_sign() -> None:
    program = identity(("1", "f32", ()), ("0", "f32", ()))
    assert list(Inputs((("%0", "3"),)).arrays(program)) == ["0"]
    assert list(Inputs((("0", "3"),)).arrays(program)) == ["1"]


@pytest.mark.parametrize("pairs", [(("y", "1"),), (("5", "1"),), (("x", "1"), ("%x", "2"))])
def test_unknown_and_repeated_names(pairs: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(UsageError):
        Inputs(pairs).arrays(identity(("x", "f32", ())))


def test_files_are_taken_together(tmp_path: Path) -> None:
    program = identity(("a", "f32", (2,)), ("b", "f32", ()))
    for name, arrays in {"one": {"a": np.ones(2, np.float32)}, "two": {"b": np.float32(3)}, "odd": {"c": np.float32(3)}}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    one, two, odd = (str(tmp_path / f"{name}.npz") for name in ("one", "two", "odd"))
    assert Inputs(files=(one, two)).arrays(program)["b"] == 3
    for files in ((one, one), (one, odd)):
        with pytest.raises(UsageError):
            Inputs(files=files).arrays(program)


@pytest.mark.parametrize(("spec", "wanted"), [("3", [3, 3]), ("[4, 5]", [4, 5]), ("iota", [0, 1]), ("random(7,8)", [7, 7])])
def test_one_input_counts_before_those_of_a_file(spec: str, wanted: list[int], tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.array([1, 2], np.int32), y=np.array([8, 9], np.int32))
    program = identity(("x", "si32", (2,)), ("y", "si32", (2,)))
    arrays = Inputs((("x", spec),), files=(str(tmp_path / "all.npz"),)).arrays(program)
    assert {n: a.tolist() for n, a in arrays.items()} == {"x": wanted, "y": [8, 9]}


def test_symbols_come_from_bindings_and_from_other_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5,), np.float32))
    program = identity(("a", "f32", (sym("N"),)), ("b", "f32", (sym("N"), 2)))
    found = Inputs((("a", f"@{tmp_path}/a.npy"), ("b", "1"))).arrays(program)
    assert found["b"].shape == (5, 2)
    assert Inputs((("b", "1"),), bindings={"N": 3}).arrays(program)["b"].shape == (3, 2)
    with pytest.raises(Violation, match=r"\?N"):
        Inputs((("b", "1"),)).arrays(program)


def _bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint8)


@pytest.mark.parametrize("name", ["bf16", "fp8_e4m3", "fp8_e5m2"])
def test_floats_that_npy_cannot_name(name: str, tmp_path: Path) -> None:
    dtype: DType = DTYPES[name]
    values = np.array([0.5, -1.5, 2.0], getattr(ml_dtypes, dtype.numpy))
    np.save(tmp_path / "bits.npy", values.view(f"V{values.itemsize}"))
    np.save(tmp_path / "wide.npy", values.astype(np.float32))
    with open(tmp_path / "x.safetensors", "wb") as file:
        arrayfiles.save("x.safetensors", file, {"k": values})
    for spec in ("bits.npy", "wide.npy", "x.safetensors:k"):
        found = given(name, (3,), f"@{tmp_path}/{spec}")
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(_bits(found), _bits(values))
    np.save(tmp_path / "lossy.npy", np.array([0.1, 0, 0], np.float32))
    with pytest.raises(UsageError, match="cannot hold"):
        given(name, (3,), f"@{tmp_path}/lossy.npy")
    rounded = given(name, (3,), f"@{tmp_path}/lossy.npy", cast=True)
    np.testing.assert_array_equal(_bits(rounded), _bits(np.array([0.1, 0, 0], values.dtype)))


def test_four_bit_values_come_as_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([-8, 7], np.int8))
    np.save(tmp_path / "b.npy", np.array([-9, 7], np.int8))
    np.testing.assert_array_equal(given("si4", (2,), f"@{tmp_path}/a.npy").astype(np.int8), [-8, 7])
    with pytest.raises(UsageError):
        given("si4", (2,), f"@{tmp_path}/b.npy")


@pytest.mark.parametrize(("dtype", "array"), [("f32", np.zeros(2)), ("si32", np.zeros(2)), ("f32", np.zeros(2, np.int32))])
def test_another_dtype_needs_cast_inputs(dtype: str, array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UsageError, match="--cast-inputs"):
        given(dtype, (2,), f"@{tmp_path}/a.npy")
    assert given(dtype, (2,), f"@{tmp_path}/a.npy", cast=True).shape == (2,)


def _run(*args: str | Path, program: str = "%0 = Input {name=x} : tensor<f32[2]>\noutputs: %0\n") -> Ran:
    return run_ptir("run", "-", *args, stdin=program.encode())


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        ([], 2, "`x`: tensor<f32"),
        (["--input", "y=1"], 2, "no input `y`"),
        (["--input", "x=[1,2,3]"], 2, "got shape [3]"),
        (["--input", "x"], 2, "NAME=TEXT"),
        (["--input", "x=@missing.npy"], 4, "no such file or directory\n --> missing.npy"),
        (["--input", "x=1", "-o", "out.txt"], 2, "out.txt"),
        (["--input", "x=1", "--function", "g"], 2, "no function `g`"),
    ],
)
def test_exit_codes(args: list[str], status: int, said: str) -> None:
    ran = _run(*args)
    assert ran.status == status and said in ran.err, ran.err


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000000,), }".ljust(117) + "\n"
DAMAGED = {
    "a.npy": b"\x93NUMPY\x01\x00v\x00" + HEADER.encode(),
    "b.npy": b"junk",
    "c.npz": b"PK junk",
    "d.safetensors": b"\xff" * 20,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_array_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(DAMAGED[name])
    ran = _run("--input", f"x=@{tmp_path / name}")
    assert ran.status == 4 and name in ran.err and "not a readable" in ran.err, ran.err


def test_no_pickle_is_ever_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}, []], object), allow_pickle=True)
    assert _run("--input", f"x=@{tmp_path}/a.npy").status == 4


def test_inputs_saved_are_inputs_read(tmp_path: Path) -> None:
    first = _run("--random", "3", "--save-inputs", tmp_path / "i.npz")
    again = _run("--inputs", tmp_path / "i.npz")
    assert first.status == again.status == 0
    assert first.out == again.out


def test_a_list_determines_the_symbols_of_its_shape() -> None:
    program = identity(("x", "f32", (sym("N"),)), ("y", "f32", (sym("N"), 2)), ("z", "f32", (sym("M"), sym("K"))))
    told = Inputs((("y", "1"), ("x", "[1, 2, 3]"), ("z", "[[1], [2]]"))).arrays(program)
    assert {name: a.shape for name, a in told.items()} == {"x": (3,), "y": (3, 2), "z": (2, 1)}
    np.testing.assert_array_equal(told["x"], np.array([1, 2, 3], np.float32))


def test_lists_that_disagree_about_a_symbol() -> None:
    program = identity(("x", "f32", (sym("N"),)), ("y", "f32", (sym("N"),)))
    with pytest.raises(Violation) as disagreement:
        Inputs((("x", "[1, 2]"), ("y", "[1, 2, 3]"))).arrays(program)
    assert disagreement.value.code == "DynamicDimensionMismatch"
    with pytest.raises(UsageError, match="got shape"):
        Inputs((("x", "[[1, 2]]"),)).arrays(program)


@pytest.mark.parametrize("asked", [("--input", "x=1"), ("--random", "0")])
def test_an_open_symbol_is_shown_at_its_parameter(asked: tuple[str, str]) -> None:
    text = b"func @f(%a: tensor<f32>, %x: tensor<f32, ?N>) -> tensor<f32, ?N> {\n  return %x\n}\n"
    ran = run_ptir("run", *asked, stdin=text)
    assert ran.status == 1 and "error[UnboundSymbol]" in ran.err and " --> <stdin>:1:26\n" in ran.err


def test_a_symbol_that_nothing_defines_is_shown_where_it_is_first() -> None:
    body = "  %y = broadcast_to(%x) result_shape[?Q] -> tensor<f32, ?Q>\n  return %y\n"
    text = f"func @f(%x: tensor<f32>) -> tensor<f32, ?Q> {{\n{body}}}\n"
    ran = run_ptir("run", "--random", "0", stdin=text.encode())
    assert ran.status == 1 and "error[UnboundSymbol]: no value for Q\n --> <stdin>:2:3\n" in ran.err


@pytest.mark.parametrize(
    ("shape", "spec", "status", "told"),
    [
        ("2x4", "--input x=@{}:x", 2, "x"),
        ("?N", "--input x=@{}:x", 3, "memory"),
        ("2x4", "--inputs {}", 2, "x"),
        ("?N", "--inputs {}", 3, "memory"),
    ],
)
def test_what_a_header_says_is_judged_before_the_data(shape: str, spec: str, status: int, told: str, tmp_path: Path) -> None:
    """A few kilobytes may mean gigabytes."""
    path = tmp_path / "zeros.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("x.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": (1 << 25,)})
        for _ in range(1 << 7):
            member.write(bytes(1 << 20))
    (tmp_path / "p.ptir").write_text(f"func @f(%x: tensor<f32, {shape}>) -> tensor<f32, {shape}> {{\n  return %x\n}}\n")
    ran = run_ptir("run", tmp_path / "p.ptir", "--max-memory", "64M", *spec.format(path).split())
    assert (ran.status, told in ran.err) == (status, True), ran.err
    tracemalloc.start()
    with pytest.raises(UsageError):
        given("f32", (2, 4), f"@{path}:x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


LINEAR = """func @f(%x: tensor<f32, 2x3>, %w: tensor<f32, 3x2>) -> tensor<f32, 2x2> {
  %b = constant() value[dense<@w.safetensors.index.json:b>] -> tensor<f32, 2x2>
  %p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 2x2>
  %y = add(%p, %b) -> tensor<f32, 2x2>
  return %y
}
"""
SHARDS = {"one.safetensors": ("w", (3, 2)), "two.safetensors": ("b", (2, 2)), "three.safetensors": ("head", (5,))}


def sharded(folder: Path) -> dict[str, np.ndarray]:
    """Arrays in three files with an index, as big models have them; one is of no input."""
    folder.mkdir(exist_ok=True)
    made = {key: np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape) for key, shape in SHARDS.values()}
    for name, (key, _) in SHARDS.items():
        with open(folder / name, "wb") as file:
            arrayfiles.save(name, file, {key: made[key]})
    table = {"metadata": {"total_size": 60}, "weight_map": {key: name for name, (key, _) in SHARDS.items()}}
    (folder / "w.safetensors.index.json").write_text(json.dumps(table))
    return made


def test_weights_in_several_files_are_found_by_their_index(tmp_path: Path) -> None:
    made = sharded(tmp_path)
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "p.ptir").write_text(LINEAR)
    index = tmp_path / "w.safetensors.index.json"
    for given in (("--weights", str(index)), ("--input", f"w=@{index}:w")):
        out = str(tmp_path / "out.npy")
        ran = run_ptir("run", str(tmp_path / "p.ptir"), "--input", f"x=@{tmp_path / 'x.npy'}", *given, "-o", out)
        assert ran.status == 0, ran.err
        np.testing.assert_array_equal(np.load(out), x @ made["w"] + made["b"])
    assert arrayfiles.load(str(index), "head").tolist() == [1, 2, 3, 4, 5]
    assert run_ptir("verify", str(tmp_path)).status == 0  # an index is no program
    ran = run_ptir("run", str(tmp_path / "p.ptir"), "--random", "0", "--inputs", str(index))
    assert ran.status == 2 and "no input `b`" in ran.err  # what --inputs has is an input's; --weights leaves the rest


def test_constants_are_read_from_the_files_of_weights_wherever_they_are(tmp_path: Path) -> None:
    sharded(tmp_path / "far")
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "p.ptir").write_text(LINEAR.replace("<@w", "<@../far/w"))
    command = ("run", str(tmp_path / "near" / "p.ptir"), "--random", "0")
    assert run_ptir(*command).status == 1
    assert run_ptir(*command, "--weights", str(tmp_path / "far" / "w.safetensors.index.json")).status == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "it has no table `weight_map`"), ("{", "not a readable"), ('{"weight_map": {"w": 3}}', "not a .safetensors file"),
        ('{"weight_map": {"w": "../x.safetensors"}}', "not a .safetensors file in its folder"),
        ('{"weight_map": {"w": "gone.safetensors"}}', "gone.safetensors"),
        ('{"weight_map": {"w": "two.safetensors"}}', "has no `w`"),
        ('{"weight_map": {"w": "one.safetensors", "w": "two.safetensors"}}', "repeats a key"),
    ],
)  # fmt: skip
def test_an_index_that_is_wrong_is_reported(text: str, said: str, tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "w.safetensors.index.json").write_text(text)
    (tmp_path / "p.ptir").write_text("func @f(%w: tensor<f32, 3x2>) -> tensor<f32, 3x2> {\n  return %w\n}\n")
    ran = run_ptir("run", str(tmp_path / "p.ptir"), "--weights", str(tmp_path / "w.safetensors.index.json"))
    assert ran.status == 4 and said in ran.err, ran.err


def test_of_several_files_of_weights_the_first_that_has_an_array_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text(
        "func @f(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {\n  %y = sub(%a, %b) -> tensor<f32>\n  return %y\n}\n"
    )
    np.savez(tmp_path / "one.npz", b=np.float32(1), other=np.float32(7))
    np.savez(tmp_path / "two.npz", a=np.float32(9), b=np.float32(2))
    one, two = (("--weights", str(tmp_path / name)) for name in ("one.npz", "two.npz"))
    for files, wanted in (((*one, *two), 8), ((*two, *one), 7)):
        assert float(run_ptir("run", tmp_path / "p.ptir", *files).text.split()[-1]) == wanted


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
@pytest.mark.parametrize("form", ["ptir", "mind"])
def test_saved_values_are_those_of_the_program(engine: str, form: str, tmp_path: Path) -> None:
    """c = a * b + a: inputs and values are saved, and the outputs are those of a run that saves none."""
    text = {
        "ptir": "func @f(%a: tensor<f32, 2>, %b: tensor<f32, 2>) -> tensor<f32, 2> {\n  %p = mul(%a, %b) -> tensor<f32, 2>\n"
        "  %c = add(%p, %a) -> tensor<f32, 2>\n  return %c\n}\n",
        "mind": "%a = Input {name=a} : tensor<f32[2]>\n%b = Input {name=b} : tensor<f32[2]>\n%p = Mul (%a, %b)\n"
        "%c = Add (%p, %a)\noutputs: %c\n",
    }[form]
    given, saved = tmp_path / "given", tmp_path / "values.npz"
    given.write_text(text)
    words = ("--input", "a=[1,2]", "--input", "b=[3,5]", "--engine", engine)
    ran = run_ptir("run", given, *words, "--save-values", saved)
    assert ran.status == 0 and ran.text == run_ptir("run", given, *words).text
    found = {name: x.tolist() for name, x in np.load(saved).items()}
    assert found == {"a": [1.0, 2.0], "b": [3.0, 5.0], "p": [3.0, 10.0], "c": [4.0, 12.0]}
