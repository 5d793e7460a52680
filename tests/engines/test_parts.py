"""The parts that every engine shares, one by one: ports, options, the choice of engine and passes, memory, and errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dtypes import BF16, F32, INDEX, SI4, SI32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Function, Region, Value
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source, Span, pack
from ptir_tools.core.types import POISON, sym, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.engines import RunOptions, choose, memory, options, reference, rejecting, specialized
from ptir_tools.engines import signature as ports
from ptir_tools.engines.signature import Port
from tests.engines.programs import build

N, M = sym("N"), sym("M")


# ---- inputs


PORTS = [Port("x", tensor(F32, (2, N))), Port("n", tensor(SI32))]
X, COUNT = np.zeros((2, 3), np.float32), np.array(7, np.int32)


def test_inputs_come_by_name_or_in_order() -> None:
    for given in ({"x": X, "n": COUNT}, {"n": COUNT, "x": X}, [X, COUNT], (X, COUNT)):
        found = ports.order(PORTS, given)
        assert found[0] is X and found[1] is COUNT
    assert ports.order([], []) == [] and ports.order([], {}) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([X], r"1 inputs given, the program takes 2: `x`: tensor<f32, 2x\?N>, `n`: tensor<si32>"),
        ([X, COUNT, X], "3 inputs given, the program takes 2"),
        ({"x": X}, "no input for `n`: tensor<si32>$"),
        ({"x": X, "m": COUNT}, "no input for `n`: tensor<si32>$"),
        ({}, r"no input for `x`: tensor<f32, 2x\?N>, `n`: tensor<si32>"),
        ({"x": X, "n": COUNT, "m": X}, "no parameter is called `m`"),
        ({"x": X.astype(np.float64), "n": COUNT}, "`x` is .*, got an array of float64"),
        ({"x": X[0], "n": COUNT}, r"`x` is .*, got shape \[3\]"),
        ({"x": X[:1], "n": COUNT}, r"`x` is .*, got shape \[1, 3\]"),
        ({"x": X[..., None], "n": COUNT}, r"`x` is .*, got shape \[2, 3, 1\]"),
        ({"x": X, "n": "many"}, "`n` is tensor<si32>, "),
    ],
)
def test_inputs_that_do_not_fit_are_named(given: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ports.order(PORTS, given)  # type: ignore[arg-type]


def test_an_input_that_is_no_tensor_cannot_be_given() -> None:
    with pytest.raises(UsageError, match="which cannot be given"):
        ports.order([Port("x", POISON)], [X])


def test_an_input_is_itself_or_an_aligned_copy_in_the_order_of_this_machine() -> None:
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    apart = np.frombuffer(b"\0" + numbers.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    (found,) = ports.order(PORTS[:1], [apart])
    assert not apart.flags.aligned and found.flags.aligned and np.array_equal(found, numbers)
    stated = numbers.view(np.dtype(np.float32).newbyteorder("="))
    assert ports.order(PORTS[:1], [stated])[0] is stated
    other = numbers.astype(">f4")
    if other.dtype != numbers.dtype:
        with pytest.raises(UsageError):
            ports.order(PORTS[:1], [other])
    narrow = np.zeros((), ml_dtypes.bfloat16)
    assert ports.order([Port("b", tensor(BF16))], [narrow])[0] is narrow


def test_symbols_get_the_numbers_of_shapes() -> None:
    numbers = {"M": 9}
    ports.bind_shapes(
        [Port("x", tensor(F32, (2, N))), Port("m", POISON), Port("y", tensor(F32, (N, M)))], [(2, 5), (), (5, 9)], numbers, "Code"
    )
    assert numbers == {"M": 9, "N": 5}
    with pytest.raises(Violation) as caught:
        ports.bind_shapes([Port("x", tensor(F32, (N,))), Port("y", tensor(F32, (N,)))], [(5,), (6,)], {}, "Code")
    assert caught.value.code == "Code" and "`y`" in caught.value.message


def test_indices_with_the_name_of_a_symbol_are_extents() -> None:
    known = [
        Port("x", tensor(F32, (N,))),
        *(Port(n, tensor(INDEX)) for n in "NMK"),
        Port("L", tensor(INDEX, (1,))),
        Port("P", tensor(SI32)),
    ]
    numbers = {"N": 4, "M": 5, "L": 6, "P": 7}
    for bound, wanted in (((), {"N": 4}), (("M", "K", "L", "P"), {"N": 4, "M": 5})):
        found = ports.given_extents(known, numbers, bound)
        assert {n: int(a) for n, a in found.items()} == wanted and all(
            a.dtype == np.int64 and not a.shape for a in found.values()
        )


# ---- outputs


def test_outputs_with_one_name_are_numbered_and_tuples_taken_apart() -> None:
    program, b, (x,) = build((F32, (4,)))
    t = b.op("top_k", x, k=2, name="t")
    b.results(x, t, x, t, x)
    p = program.main.params[0].name
    assert [(r.name, str(r.type)) for r in ports.results(program)] == [
        (p, "tensor<f32, 4>"), ("t.0", "tensor<f32, 2>"), ("t.1", "tensor<si32, 2>"), (f"{p}_1", "tensor<f32, 4>"),
        ("t.0_1", "tensor<f32, 2>"), ("t.1_1", "tensor<si32, 2>"), (f"{p}_2", "tensor<f32, 4>"),
    ]  # fmt: skip


def test_the_function_to_run_is_the_entry_or_the_named_one() -> None:
    program, _, _ = build((F32, (4,)))
    other = Function("other", [Value(tensor(F32), "z")])
    program.functions.append(other)
    assert ports.entry(program) is program.main and ports.entry(program, "other") is other
    assert [p.name for p in ports.signature(program, "other")] == ["z"]
    with pytest.raises(UsageError, match=f"no function `no` .there are: {program.main.name}, other."):
        ports.entry(program, "no")


# ---- programs with numbers


def test_a_program_is_bound_by_bindings_its_own_numbers_and_shapes() -> None:
    text = "func @f(%x: tensor<f32, ?Nx?M>, %y: tensor<f32, ?N>) -> tensor<f32, ?Nx?M> {\n  return %x\n}\n"
    program = ptir.read(text)
    given = [np.zeros((2, 3), np.float32), np.zeros(2, np.float32)]
    static = specialized(program, given, RunOptions())
    assert [str(p.type) for p in static.main.params] == ["tensor<f32, 2x3>", "tensor<f32, 2>"]
    assert [str(p.type) for p in program.main.params] == ["tensor<f32, ?Nx?M>", "tensor<f32, ?N>"]
    with pytest.raises(Violation, match="extent 2, expected 4"):
        specialized(program, given, RunOptions(bindings={"N": 4}))
    with pytest.raises(Violation):
        specialized(program, [given[0], np.zeros(3, np.float32)], RunOptions())
    for n, fits in ((3, True), (4, False)):
        program.attrs["dims"] = {"M": n}
        if fits:
            specialized(program, given, RunOptions())
        else:
            with pytest.raises(Violation):
                specialized(program, given, RunOptions())
    program.attrs["dims"] = {"M": 4}
    specialized(program, given, RunOptions(bindings={"M": 3}))  # which the caller knows better


# ---- options


@pytest.mark.parametrize(("value", "on"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_poison_is_on_where_the_environment_says_so(value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PTIR_POISON", raising=False)
    if value is not None:
        monkeypatch.setenv("PTIR_POISON", value)
    assert options.poisons() is on and RunOptions().poison is on and RunOptions(poison=not on).poison is not on


@pytest.mark.parametrize(
    "wrong",
    [{"engine": "fast"}, {"order": "late"}, {"undef": "one"}, {"sharding": object(), "engine": "numpy"}, {"hosts": object()}],
)
def test_options_that_cannot_be_are_wrong_usage(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        RunOptions(**wrong)  # type: ignore[arg-type]


def test_options_that_can_be_are_kept_for_another_engine_but_for_devices() -> None:
    every = [RunOptions(engine=e) for e in ("auto", *options.ENGINES)]
    every += [RunOptions(order=o) for o in options.ORDERS] + [RunOptions(undef=u) for u in options.UNDEF]
    devices = [RunOptions(engine=e, sharding=object(), hosts=object()) for e in ("auto", "xla")]  # type: ignore[arg-type]
    for given in (*every, *devices):
        other = given.on("numpy")
        assert (other.engine, other.sharding, other.hosts) == ("numpy", None, None)
        assert (other.order, other.undef, other.seed) == (given.order, given.undef, given.seed)
    assert options.engine_of("numpy") == "numpy"
    with pytest.raises(ValueError, match="`fast` is none of reference, numpy, native, xla"):
        options.engine_of("fast")


# ---- the choice of passes


def test_passes_suit_the_ops_of_a_program() -> None:
    plain, b, (x,) = build((F32, (4,)))
    b.results(b.op("exp", x))
    assert choose._pipeline(plain) == choose.PIPELINE
    text = (
        "func @f(%x: tensor<f32, 8x8>) -> tensor<f32, 8x8> {\n  %s = custom_call(%x) CALL -> tensor<f32, 8x8>\n  return %s\n}\n"
    )
    called = ptir.read(text.replace("CALL", 'target["ptir.softmax.v1"] attrs[{axis = 1}]'))
    assert choose._pipeline(called) == f"{choose.WITHOUT_CALLS},{choose.PIPELINE}"
    image = ptir.read(
        "func @f(%x: tensor<f32, 1x5x5x2>) -> tensor<f32, 1x3x3x18> {\n"
        "  %y = extract_patches(%x) window[3, 3] strides[1, 1] -> tensor<f32, 1x3x3x18>\n  return %y\n}\n"
    )
    assert choose._pipeline(image) == f"{choose.CONVOLUTIONS},{choose.WITHOUT_CALLS},{choose.PIPELINE}"


def test_dead_ops_are_left_out_of_a_copy_unless_something_looks_at_them() -> None:
    program, b, (x,) = build((F32, (4,)))
    b.op("neg", x)
    b.results(b.op("exp", x))
    alive = choose.without_dead(program, RunOptions())
    assert [op.defn.short for op in alive.main.body] == ["exp"] and len(program.main.body) == 2
    assert choose.without_dead(program, RunOptions(observe=lambda op, results: None)) is program


# ---- memory


@pytest.mark.parametrize(
    ("dtype", "shape", "count"), [(F32, (), 4), (F32, (3, 5), 60), (F32, (0, 5), 20), (SI4, (0, 0), 1), (BF16, (7, 0, 2), 28)]
)
def test_an_empty_extent_counts_as_one(dtype: object, shape: tuple[int, ...], count: int) -> None:
    assert memory.addressed(dtype, shape) == count  # type: ignore[arg-type]


def test_the_widest_empty_tensor_of_all_blocks_counts() -> None:
    text = (
        "func @f(%x: tensor<f32, 0x9>, %n: tensor<f32, ?N>) -> tensor<f32, 9x0> {{\n  %a = neg(%n) -> tensor<f32, ?N>\n"
        "  %y = transpose(%x) perm[1, 0] -> tensor<f32, 9x0>\n  %z = neg(%x) -> tensor<f32, 0x9>\n  return %y\n}}\n"
    )
    assert memory.widest_empty(ptir.read(text.format())) == 36
    plain = "func @f(%x: tensor<f32, 9>) -> tensor<f32, 9> {\n  %y = neg(%x) -> tensor<f32, 9>\n  return %y\n}\n"
    assert memory.widest_empty(ptir.read(plain)) == 0


def test_results_of_the_reference_are_arrays_of_their_own() -> None:
    given, base = np.zeros((2, 3)), np.ones((4, 4))
    own = np.full((2, 2), 7.0)
    results = (own, given, base[1:], own, np.asfortranarray(base), (base.T, own))
    found = [*reference.without_aliases(results, ((given,),))]
    assert found[0] is own
    assert all(x.base is None and x.flags.c_contiguous for x in found) and len({id(x) for x in found}) == len(found)
    for x, y in zip(found, [own, given, base[1:], own, base, base.T, own], strict=True):
        assert np.array_equal(x, y)


def test_the_widest_op_counts_operands_and_results() -> None:
    program, b, (x, y) = build((F32, (4, 5)), (SI32, (3,)))
    b.op("transpose", x, perm=(1, 0))
    assert reference.widest((program.main,)) == 0
    b.op("mul", y, y)
    assert reference.widest((program.main,)) == 36 and reference.widest((program.main,), 8) == 72
    other = Region("r", body=list(program.main.body))
    b.op("add", x, x)
    assert reference.widest((other, program.main)) == 240 and reference.widest([]) == 0


# ---- errors of a run


def fail(error: Exception, context: Context, codes: dict[str, str] | None = None) -> None:
    with rejecting(Diagnostics(Source("f", "%y = neg(%x)")), context, codes):
        raise error


def test_a_violation_is_told_at_the_op_that_failed() -> None:
    _, b, (x,) = build((F32, (4,)))
    op = b.op("neg", x).op
    op.loc = pack(5, 8)
    with pytest.raises(Rejected) as caught:
        fail(Violation("Code", "no"), Context(failed=op), {"Code": "Other", "Third": "Fourth"})
    (found,) = caught.value.diagnostics
    assert (found.code, found.message, found.span) == ("Other", "no", Span(5, 8))
    with pytest.raises(Rejected) as caught:
        fail(Violation("Code", "no"), Context(), {"Third": "Fourth"})
    assert (caught.value.diagnostics[0].code, caught.value.diagnostics[0].span) == ("Code", None)


@pytest.mark.parametrize(
    ("flag", "loc", "wanted"), [("--max-iterations", 0, 77), ("--max-iterations", 5, 5), ("--timeout", 0, 0), (None, 0, 77)]
)
def test_a_limit_is_told_at_its_op_but_for_time(flag: str | None, loc: int, wanted: int) -> None:
    _, b, (x,) = build((F32, (4,)))
    op = b.op("neg", x).op
    op.loc = 77
    with pytest.raises(LimitExceeded) as caught:
        fail(LimitExceeded("much", flag, loc), Context(failed=op))
    assert caught.value.loc == wanted
    with pytest.raises(LimitExceeded) as caught:
        fail(LimitExceeded("much", flag, loc), Context())
    assert caught.value.loc == loc


def test_a_tuple_is_as_many_inputs_as_it_has_leaves() -> None:
    pair = tuple_of([tensor(F32), tuple_of([tensor(SI32), tensor(F32, (2,))])])
    program, *_ = build((F32, (4,)))
    program.functions.append(Function("g", [Value(pair, "p"), Value(tensor(F32), "q")], loc=5))
    found = ports.signature(program, "g")
    assert [(p.name, p.text, p.loc) for p in found] == [
        ("p.0", "tensor<f32>", 5), ("p.1.0", "tensor<si32>", 5), ("p.1.1", "tensor<f32, 2>", 5), ("q", "tensor<f32>", 5)
    ]  # fmt: skip
    program.functions[-1].attrs = {"input_names": ["a", "b"], "input_locs": {"a": 9}}
    assert [(p.name, p.loc) for p in ports.signature(program, "g")] == [("a.0", 9), ("a.1.0", 9), ("a.1.1", 9), ("b", 5)]
