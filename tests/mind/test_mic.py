"""`mic@1` and the listing of MIND's own tool."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.dialects.mind.generate import generate

HEAD = "mic@1\nT0 [f32;2,3]\nT1 [i64;2]\nT2 f32\n"


def run(text: str, *inputs: object) -> list[np.ndarray]:
    """The outputs in order."""
    return [*ptir.run(ptir.read(text), [np.asarray(x, np.float32) for x in inputs]).values()]


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("N1 add N0 N0 T2", X + X),
        ("N1 sub N0 N0 T2", X - X),
        ("N1 mul N0 N0 T2", X * X),
        ("N1 relu N0 T2", np.maximum(X, 0)),
        ("N1 sum N0 [] kd=0 T2", X.sum()),
        ("N1 sum N0 [0] kd=1 T2", X.sum(0, keepdims=True)),
        ("N1 mean N0 [1] kd=0 T2", X.mean(1)),
        ("N1 reshape N0 [3,2] T2", X.reshape(3, 2)),
        ("N1 expand N0 [1] T2", X[:, None]),
        ("N1 transpose N0 [1,0] T2", X.T),
        ("N1 index N0 [0:1] T2", X[1]),
        ("N1 index N0 [1:2] T2", X[:, 2]),
        ("N1 index N0 [0:1,1:2] T2", X[1, 2]),
        ("N1 slice N0 0:2:1,0::2 T2", X[:, ::2]),
        ("N1 slice N0 1:2:1,0:2:1 T2", X[1:2, :2]),
    ],
)
def test_an_instruction_of_mic(line: str, expected: np.ndarray) -> None:
    (made,) = run(f"{HEAD}N0 const.tensor T0\n{line}\nO N1\n", X)
    assert made.shape == np.shape(expected) and np.allclose(made, expected)


def test_products_windows_and_gathers_of_mic() -> None:
    text = "mic@1\nT0 [f32;2,3]\nT1 [f32;3,4]\nT2 [f32;3]\nN0 const.tensor T0\nN1 const.tensor T1\nN2 const.tensor T2\n"
    text += "N3 matmul N0 N1 T0\nN4 dot N2 N2 T0\nO N3\nO N4\n"
    a, b, v = X, np.arange(12, dtype=np.float32).reshape(3, 4), np.float32([1, 2, 3])
    first, second = run(text, a, b, v)
    assert np.allclose(first, a @ b) and np.allclose(second, v @ v)
    text = "mic@1\nT0 [f32;1,4,4,1]\nT1 [f32;3,3,1,1]\nN0 const.tensor T0\nN1 const.tensor fill=1 T1\n"
    (made,) = run(f"{text}N2 conv2d N0 N1 s=[1,1] p=valid T0\nO N2\n", np.ones((1, 4, 4, 1)))
    assert np.array_equal(made, np.full((1, 2, 2, 1), 9))
    text = "mic@1\nT0 [f32;4,2]\nT1 [i64;2]\nN0 const.tensor T0\nN1 const.tensor fill=3 T1\nN2 gather N0 N1 ax=0 T0\nO N2\n"
    (made,) = run(text, np.arange(8).reshape(4, 2))
    assert np.array_equal(made, [[6, 7], [6, 7]])


def test_an_integer_constant_has_the_dtype_of_what_it_meets() -> None:
    text = f"{HEAD}N0 const.tensor T0\nN1 const.tensor T1\nN2 const.i64 3 T2\nN3 add N0 N2 T2\nN4 mul N1 N2 T2\nO N3\nO N4\n"
    first, second = ptir.run(ptir.read(text), [X, np.array([4, 5])]).values()
    assert np.array_equal(first, X + 3) and first.dtype == np.float32
    assert np.array_equal(second, [12, 15]) and second.dtype == np.int64
    for outputs in ("O N2\nN3 add N0 N2 T2\nO N3\n", "N3 add N0 N2 T2\nO N3\nO N2\n"):  # an output before the use, and behind it
        program = ptir.read(f"{HEAD}N0 const.tensor T0\nN2 const.i64 3 T2\n{outputs}")
        found = sorted(ptir.run(program, [X]).values(), key=np.ndim)
        assert found[0] == 3 and np.array_equal(found[1], X + 3)


LISTING = """module {
  %0 = const.tensor F32 ["2", "3"] fill=None
  %1 = const.i64 2
  %2 = mul %0, %1
  %3 = sum %2 axes=[1] keepdims=true
  %4 = index %0 [IndexSpec { axis: 0, index: 1 }]
  %5 = slice %0 [SliceSpec { start: 0, end: Some(1), stride: 1 }, SliceSpec { start: 1, end: None, stride: 1 }]
  %6 = transpose %0 perm=[1, 0]
  %7 = expand_dims %0 axis=0
  %8 = slice %0 [SliceSpec { axis: 1, start: 1, end: None, stride: 1 }]
  %9 = const.f64 nan
  %10 = const.f64 -inf
  %11 = add %9, %10
  output %3
  output %4
  output %5
  output %6
  output %7
  output %8
  output %11
}  // next_id = 12
"""


def test_the_listing_is_read() -> None:
    made = run(LISTING, X)
    expected = [(2 * X).sum(1, keepdims=True), X[1], X[:1, 1:], X.T, X[None], X[:, 1:], np.float64("nan")]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(made, expected, strict=True))


FOREIGN = """module {
  %0 = const.array[i64; 3] @tab = [1, 2, 3]
  %1 = array.load %0 [%9]
  %2 = array.store %0 [%1] = %1
  %3 = if cond=%1 then=%2 else=%1
  %4 = vec.load %0 [%1] : vector<8xf32>
  vec.store %4, %0 [%1] : vector<8xf32>
  %5 = vec.fma %4, %4, %4 : vector<8xf32>
  %6 = vec.reduce.add %5 : vector<8xf32> into f32
  %7 = sparse.attr %2 layout=Csr
  // fn f reap_threshold=0.5
  output %7
}  // next_id = 8
"""


def test_each_instruction_of_the_listing_that_core_ir_lacks_is_named() -> None:
    with pytest.raises(Rejected) as raised:
        ptir.verify(ptir.read(FOREIGN, format="mindc"))
    found = [(d.code, d.message.split("`")[1]) for d in raised.value.diagnostics]
    names = [
        "const.array",
        "array.load",
        "array.store",
        "if",
        "vec.load",
        "vec.store",
        "vec.fma",
        "vec.reduce.add",
        "sparse.attr",
    ]
    assert found == [("E6003", name) for name in names]


def test_another_version_is_one_error() -> None:
    with pytest.raises(Rejected) as raised:
        ptir.read("mic@2\nT0 f16 2\nm T0\n", format="mic")
    assert [d.code for d in raised.value.diagnostics] == ["E1007"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("mic@2\nO N0\n", "E1007"),
        (f"{HEAD}N0 const.tensor T9\nO N0\n", "E2001"),
        (f"{HEAD}N0 relu N1 T0\nO N0\n", "E4001"),
        (f"{HEAD}N0 const.tensor T0\nN0 const.tensor T0\nO N0\n", "E4002"),
        (f"{HEAD}N0 const.tensor T0\nN1 div N0 N0 T0\nO N1\n", "E6003"),
        (f"{HEAD}N0 const.tensor T0\nN1 rleu N0 T0\nO N1\n", "E6003"),
        (f"{HEAD}N0 const.tensor T0\nN1 add N0 T0\nO N1\n", "E2007"),
        (f"{HEAD}N0 const.tensor T0\nN1 gather N0 N0 ax=1 T0\nO N1\n", "E4013"),
        (f"{HEAD}N0 const.tensor T0\nN1 index N0 [0:0,3:0] T0\nO N1\n", "E4013"),
        (f"{HEAD}N0 const.tensor T0\nN1 relu N0 T0 [\nO N0\n", "E1007"),
        (f"{HEAD}N0 const.tensor T0\n", "E4003"),
        ("mic@1\nT0 [f16;2]\nO N0\n", "E2005"),
        ("mic@1\nT0 [i64;2]\nN0 const.tensor fill=9223372036854776000 T0\nO N0\n", "E4005"),
        ("mic@1\nT0 [i32;2]\nN0 const.tensor fill=2.5 T0\nO N0\n", "E4005"),
        ("mic@1\nT0 [f32;N]\nN0 const.tensor T0\nO N0\n", "E4004"),
        (f"{HEAD}N0 const.tensor T0\nN1 relu_grad N0 N0 T2\nO N1\n", "E6003"),
    ],
)
def test_what_is_wrong_has_a_code(text: str, code: str) -> None:
    with pytest.raises(Rejected) as raised:
        ptir.verify(ptir.read(text))
    assert code in {d.code for d in raised.value.diagnostics}


def test_what_is_written() -> None:
    """A reshape has the type of its result; mic@1 gives the others none of their own."""
    lines = ("mic@1", "T0 [f32;2,3]", "T1 [f32;3,2]", "T2 f32", "N0 const.tensor T0", "N1 reshape N0 [3,2] T1", "N2 relu N1 T2",
             "N3 sum N2 [0] kd=1 T2", "O N3", "")  # fmt: skip
    text = "\n".join(lines)
    assert ptir.write(ptir.read(text), "mic") == text


TYPED = ("mic@1", "T0 [f32;2,3]", "T1 f32")


@pytest.mark.parametrize(
    "lines",
    [
        # A transpose puts a placeholder in the table, and refers to f32, or to T0 without it.
        ("mic@1", "T0 [f32;2,3]", "T1 [f32;?,?]", "N0 const.tensor T0", "N1 transpose N0 [1,0] T0", "O N1"),
        ("mic@1", "T0 [f32;2,3]", "T1 [f32;?,?]", "T2 f32", "N0 const.tensor T0", "N1 transpose N0 [1,0] T2", "N2 relu N1 T2",
         "O N2"),
        # Inputs are where they were, outputs too.
        (*TYPED, "N0 const.tensor T0", "N1 relu N0 T1", "N2 const.tensor T0", "N3 add N1 N2 T1", "O N3"),
        (*TYPED, "N5 const.tensor T0", "N1 relu N5 T1", "N2 relu N1 T1", "O N1", "O N2"),
        (*TYPED, "N5 const.tensor T0", "N1 relu N5 T1", "O N1", "N2 relu N1 T1", "O N2"),
        (*TYPED, "N0 const.tensor T0", "N1 relu N0 T1", "O N1", "O N0", "O N1"),
        ("mic@1", "T0 i32", "T1 f32", "N0 const.i64 1 T0", "O N0", "N1 const.i64 2 T0", "N2 add N0 N1 T1", "O N2"),
        ("mic@1", "T0 [f32;2]", "T1 f32", "N0 const.tensor T0", "N1 const.tensor fill=-0 T0", "N2 mul N0 N1 T1", "O N2"),
        ("mic@1", "T0 [f64;2]", "T1 f32", "N0 const.tensor T0", "N1 const.tensor fill=NaN T0", "N2 sub N0 N1 T1",
         "N3 sum N2 [-1] kd=0 T1", "N4 slice N2 0:1:1 T1", "O N3", "O N4"),
    ],
)  # fmt: skip
def test_what_the_tool_wrote_keeps_its_bytes(lines: tuple[str, ...]) -> None:
    """The tool's own reader and writer give each of these texts back as it is (star-ga/mind 6ffa13c8)."""
    text = "\n".join([*lines, ""])
    assert ptir.write(ptir.read(text), "mic") == text


def test_names_of_symbols_may_have_the_mark_of_comments() -> None:
    lines = [*TYPED, "N0 const.tensor T0", "N1 relu N0 T1", "O N1", ""]
    text = "\n".join(["# a comment", lines[0], '  S0 "a#b"', *lines[1:]])
    assert ptir.write(ptir.read(text), "mic") == "\n".join(lines)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize(
    ("constant", "uses"),
    [
        ("const.i64 3 T1", ["mul N1 N2 T2"]), ("const.i64 -7 T1", ["add N2 N1 T2", "sub N1 N2 T2"]),
        ("const.tensor fill=3 T0", ["mul N1 N2 T2"]),
    ],
)  # fmt: skip
def test_an_integer_constant_is_written_as_it_was(constant: str, uses: list[str], dtype: str) -> None:
    """Next to what ops make in another dtype it has that dtype, and is written without it."""
    lines = ["N0 const.tensor T0", "N1 add N0 N0 T2", f"N2 {constant}", *(f"N{3 + i} {use}" for i, use in enumerate(uses))]
    results = [f"O N{3 + i}" for i in range(len(uses))]
    text = "\n".join(["mic@1", f"T0 [{dtype};2]", "T1 i32", "T2 f32", *lines, *results, ""])
    program = ptir.read(text)
    assert [v.name for op in program.main.body for v in op.results] == [f"{1 + i}" for i in range(len(lines) - 1)]
    written = ptir.write(program, "mic")
    (line,) = (line for line in written.splitlines() if line.startswith("N2 "))
    assert line.split()[1:3] == constant.split()[:2]
    assert ptir.write(ptir.read(written), "mic") == written


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**53 + 1, 2**53])
def test_no_digit_of_a_large_integer_is_lost(number: int, shape: tuple[int, ...]) -> None:
    """A tensor of mic@1 holds a double; an integer of rank 0 has all its digits."""
    value = [number] * 2 if shape else number
    given = f"%0 = ConstTensor {{dtype=i64, shape={shape}, value={value}}} : tensor<i64{[*shape]}>\noutputs: %0\n"
    if shape and int(float(number)) != number:
        with pytest.raises(Rejected, match="a double does not hold"):
            ptir.write(ptir.read(given), "mic")
        return
    (made,) = ptir.run(ptir.read(ptir.write(ptir.read(given), "mic")), []).values()
    assert made.dtype == np.int64 and np.array_equal(made, np.full(shape, number))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_written_reads_back(seed: int) -> None:
    """Bytes and numbers are the same; what mic@1 cannot express is refused."""
    program = generate(Seeded(seed), size=6)
    try:
        text = ptir.write(program, "mic")
    except Rejected as refused:
        assert {d.code for d in refused.diagnostics} == {"NotTranslatable"}
        return
    again = ptir.read(text)
    assert ptir.write(again, "mic") == text
    rng = np.random.default_rng(seed)
    inputs = [np.asarray(rng.integers(-3, 4, p.type.static_shape)).astype(numpy_dtype(p.type.dtype)) for p in program.main.params]
    first, second = (ptir.run(p, inputs, engine="reference") for p in (program, again))
    for a, b in zip(first.values(), second.values(), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
