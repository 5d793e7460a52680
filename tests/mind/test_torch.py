"""The forward values and gradients of MIND modules, held to torch. Skipped where torch is not installed (extra `oracle`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.choices import Seeded
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import F64, SI32, SI64
from ptir_tools.core.ir import Op, create
from ptir_tools.core.verify import verify
from ptir_tools.dialects.mind.generate import generate
from ptir_tools.dialects.mind.ops.linear import pads
from ptir_tools.passes import PassContext, run_pipeline
from tests import peers
from tests.conftest import TESTDATA
from tests.mind.programs import good, run, show

if TYPE_CHECKING:
    from torch import Tensor

# name -> (shapes of the inputs, instructions after the inputs, the same in torch)
CASES: dict[str, tuple[list[list[int]], list[str], Callable[..., Tensor]]] = {
    "add": ([[2, 3], [3]], ["Add(%0, %1)", "Mul(%2, %2)", "Sum(%3, [], false)"], lambda x, y: ((x + y) ** 2).sum()),
    "sub": ([[1, 3], [2, 1]], ["Sub(%0, %1)", "Mul(%2, %2)", "Sum(%3, [], false)"], lambda x, y: ((x - y) ** 2).sum()),
    "mul": ([[2, 3], []], ["Mul(%0, %1)", "Mul(%2, %0)", "Sum(%3, [], false)"], lambda x, y: (x * y * x).sum()),
    "neg exp": ([[4]], ["Neg(%0)", "Exp(%1)", "Sum(%2, [], false)"], lambda x: (-x).exp().sum()),
    "sum": ([[2, 3, 4]], ["Sum(%0, [0, 2], true)", "Mul(%1, %1)", "Sum(%2, [], false)"], lambda x: (x.sum((0, 2)) ** 2).sum()),
    "mean": ([[2, 3, 4]], ["Mean(%0, [1], false)", "Exp(%1)", "Mean(%2, [], false)"], lambda x: x.mean(1).exp().mean()),
    "reshape": ([[2, 3], [6]], ["Reshape(%0, [6])", "Dot(%2, %1)"], lambda x, y: x.reshape(6) @ y),
    "transpose": (
        [[2, 3, 4], [4, 2, 3]],
        ["Transpose(%0, [2, 0, 1])", "Mul(%2, %1)", "Sum(%3, [], false)"],
        lambda x, y: (x.permute(2, 0, 1) * y).sum(),
    ),
    "axes": (
        [[2, 1, 3], [2, 1, 1, 3]],
        ["ExpandDims(%0, [1])", "Mul(%2, %1)", "Squeeze(%3, [1, 2])", "Exp(%4)", "Sum(%5, [], false)"],
        lambda x, y: (x.unsqueeze(1) * y).exp().sum(),
    ),
    "dot": ([[3, 4], [4]], ["Dot(%0, %1)", "Exp(%2)", "Sum(%3, [], false)"], lambda x, y: (x @ y).exp().sum()),
    "matmul": (
        [[2, 1, 3, 4], [5, 4, 2]],
        ["MatMul(%0, %1)", "Mul(%2, %2)", "Mean(%3, [], false)"],
        lambda x, y: ((x @ y) ** 2).mean(),
    ),
    "relu": ([[4, 5]], ["Relu(%0)", "Mul(%1, %0)", "Sum(%2, [], false)"], lambda x: (x.relu() * x).sum()),
    "log": ([[4]], ["Exp(%0)", "Log(%1)", "Mul(%2, %1)", "Sum(%3, [], false)"], lambda x: (x.exp().log() * x.exp()).sum()),
    "slice": (
        [[5, 7]],
        ["Slice(%0, [1:5:2, 0:7:3])", "Mul(%1, %1)", "Index(%0, [2, 2])", "Sum(%2, [], false)", "Mul(%3, %4)"],
        lambda x: (x[1:5:2, 0:7:3] ** 2).sum() * x[2, 2],
    ),
    "gather": (
        [[4, 2]],
        [
            "ConstTensor {dtype=i64, shape=(2, 3), value=[[3, 0, 3], [1, 3, 0]]}",
            "Gather(%0, %1)",
            "Exp(%2)",
            "Sum(%3, [], false)",
        ],
        lambda x: x[peers.torch.tensor([[3, 0, 3], [1, 3, 0]])].exp().sum(),
    ),
    "conv": (
        [[2, 6, 7, 3], [3, 2, 3, 4]],
        ["Conv2d(%0, %1, [2, 1], Custom([[1, 1], [2, 2]]))", "Mul(%2, %2)", "Sum(%3, [], false)"],
        lambda x, w: (peers.torch.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), stride=(2, 1), padding=(1, 2)) ** 2).sum(),
    ),
    "two layers": (
        [[5, 3], [3, 4], [4], [4, 2]],
        ["MatMul(%0, %1)", "Add(%4, %2)", "Exp(%5)", "MatMul(%6, %3)", "Mul(%7, %7)", "Mean(%8, [], false)"],
        lambda x, w, b, v: (((x @ w + b).exp() @ v) ** 2).mean(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    shapes, lines, formula = CASES[name]
    text = "".join(f"%{i} = Input {{name=x{i}}} : tensor<f64{s}>\n" for i, s in enumerate(shapes))
    text += "".join(f"%{i} = {line}\n" for i, line in enumerate(lines, len(shapes)))
    program, context = good(f"{text}outputs: %{len(shapes) + len(lines) - 1}\n"), PassContext()
    run_pipeline(program, "autodiff,canonicalize", context)
    assert verify(program, context.diagnostics)

    rng = np.random.default_rng(5)
    inputs = [rng.uniform(-1, 1, s) for s in shapes]
    leaves = [peers.torch.tensor(x, requires_grad=True) for x in inputs]
    loss = formula(*leaves)
    loss.backward()
    for got, want in zip(run(program, inputs), [loss.detach(), *(leaf.grad for leaf in leaves)], strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-12, atol=1e-13)


WINDOWS = [((h, w), (a, b)) for h, w in ((1, 1), (2, 3), (3, 2), (4, 4)) for a in (1, 2, 3) for b in (1, 2, 3)]
PADS = {"Valid": None, "Same": None, "Custom([[0, 0], [3, 1]])": (3, 1, 0, 0), "Custom([[2, 1], [0, 4]])": (0, 4, 2, 1)}


def gradients(text: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The loss of a module, and its gradients."""
    program, context = good(text), PassContext()
    run_pipeline(program, "autodiff,canonicalize", context)
    assert verify(program, context.diagnostics), [d.message for d in context.diagnostics]
    return list(run(program, inputs))


def by_torch(formula: Callable[..., Tensor], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The same by torch."""
    leaves = [peers.torch.tensor(x, requires_grad=True) for x in inputs]
    loss = formula(*leaves)
    loss.backward()
    return [
        loss.detach().numpy(),
        *(np.zeros_like(x) if p.grad is None else p.grad.numpy() for p, x in zip(leaves, inputs, strict=True)),
    ]


def same_pads(shape: tuple[int, int], window: tuple[int, int], strides: tuple[int, int]) -> tuple[int, int, int, int]:
    """What Same pads: left, right, top, bottom."""
    whole = [max((-(-d // s) - 1) * s + k - d, 0) for d, k, s in zip(shape, window, strides, strict=True)]
    (top, bottom), (left, right) = ((n // 2, n - n // 2) for n in whole)
    return left, right, top, bottom


@pytest.mark.parametrize("padding", PADS)
@pytest.mark.parametrize(("window", "strides"), WINDOWS)
def test_gradients_of_every_convolution(window: tuple[int, int], strides: tuple[int, int], padding: str) -> None:
    shape = (2, 7, 6, 2)
    pads = PADS[padding] or ((0, 0, 0, 0) if padding == "Valid" else same_pads(shape[1:3], window, strides))
    text = (
        f"%0 = Input {{name=x}} : tensor<f64{list(shape)}>\n%1 = Input {{name=w}} : tensor<f64{[*window, 2, 3]}>\n"
        f"%2 = Conv2d(%0, %1, {list(strides)}, {padding})\n%3 = Mul(%2, %2)\n%4 = Mul(%3, %2)\n"
        "%5 = Sum(%4, [], false)\noutputs: %5\n"
    )
    rng = np.random.default_rng(3)
    inputs = [rng.uniform(-1, 1, shape), rng.uniform(-1, 1, (*window, 2, 3))]
    wanted = by_torch(lambda x, w: (conv(x, w, strides, pads) ** 3).sum(), inputs)
    for got, want in zip(gradients(text, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (0.0, 0.0),
        (-0.0, 0.0),
        (5e-324, 1.0),
        (-5e-324, 0.0),
        (1.7e308, 1.0),
        (-1.7e308, 0.0),
        (np.inf, 1.0),
        (-np.inf, 0.0),
        (np.nan, 0.0),
    ],
)
def test_the_gradient_of_relu_at_its_edges(x: float, want: float) -> None:
    """1 above 0 and 0 elsewhere, as torch has it; of a NaN, which torch's relu keeps and MIND's makes 0, too."""
    (_, got) = gradients(
        "%0 = Input {name=x} : tensor<f64[1]>\n%1 = Relu(%0)\n%2 = Sum(%1, [], false)\noutputs: %2\n", [np.array([x])]
    )
    assert got.tolist() == [want]
    assert np.isnan(x) or [want] == by_torch(lambda p: p.relu().sum(), [np.array([x])])[1].tolist()


@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2], []])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("op", ["Sum", "Mean"])
def test_gradients_of_reductions(axes: list[int], keep: bool, op: str) -> None:
    text = (
        f"%0 = Input {{name=x}} : tensor<f64[2, 3, 4]>\n%1 = {op}(%0, {axes}, {str(keep).lower()})\n%2 = Exp(%1)\n"
        "%3 = Sum(%2, [], false)\noutputs: %3\n"
    )
    inputs = [np.random.default_rng(1).uniform(-1, 1, (2, 3, 4))]
    reduce = peers.torch.sum if op == "Sum" else peers.torch.mean
    wanted = by_torch(lambda x: reduce(x, tuple(axes) or (0, 1, 2)).exp().sum(), inputs)
    for got, want in zip(gradients(text, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


SHAPES = [
    ((), (3, 4)),
    ((1,), (3, 4)),
    ((4,), (3, 4)),
    ((3, 1), (3, 4)),
    ((3, 1, 4), (5, 1)),
    ((2, 1, 1), (1, 3, 1)),
    ((2, 3), (2, 3)),
]


@pytest.mark.parametrize("shapes", [*SHAPES, *(s[::-1] for s in SHAPES)])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_gradients_of_what_broadcasts(shapes: tuple[tuple[int, ...], tuple[int, ...]], op: str) -> None:
    text = "".join(f"%{i} = Input {{name=x{i}}} : tensor<f64{list(s)}>\n" for i, s in enumerate(shapes))
    text += f"%2 = {op}(%0, %1)\n%3 = Exp(%2)\n%4 = Sum(%3, [], false)\noutputs: %4\n"
    rng = np.random.default_rng(2)
    inputs = [rng.uniform(-1, 1, s) for s in shapes]
    combine = {"Add": peers.torch.add, "Sub": peers.torch.sub, "Mul": peers.torch.mul}[op]
    wanted = by_torch(lambda x, y: combine(x, y).exp().sum(), inputs)
    for got, want in zip(gradients(text, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


FORWARD: dict[str, tuple[list[list[int]], str, Callable[..., Tensor]]] = {
    "conv, Valid": ([[2, 7, 6, 3], [3, 2, 3, 4]], "Conv2d(%0, %1, [2, 1], Valid)", lambda x, w: conv(x, w, (2, 1), (0, 0, 0, 0))),
    "conv, Custom": (
        [[1, 5, 5, 2], [3, 3, 2, 3]],
        "Conv2d(%0, %1, [1, 2], Custom([[1, 0], [2, 3]]))",
        lambda x, w: conv(x, w, (1, 2), (2, 3, 1, 0)),
    ),
    "conv, Same, even kernel": (
        [[1, 5, 5, 2], [2, 2, 2, 3]],
        "Conv2d(%0, %1, [1, 1], Same)",
        lambda x, w: conv(x, w, (1, 1), (0, 1, 0, 1)),
    ),
    "conv, Same, strided": (
        [[1, 6, 7, 1], [3, 3, 1, 2]],
        "Conv2d(%0, %1, [2, 2], Same)",
        lambda x, w: conv(x, w, (2, 2), (1, 1, 0, 1)),
    ),
    "slice": ([[7, 5]], "Slice(%0, [1:7:2, 0:5:3])", lambda x: x[1:7:2, 0:5:3]),
    "relu": ([[3, 4]], "Relu(%0)", lambda x: x.relu()),
    "log": ([[3, 4]], "Log(%0)", lambda x: x.log()),
    "index": ([[3, 4]], "Index(%0, [2, 1])", lambda x: x[2, 1]),
}


def conv(x: Tensor, w: Tensor, strides: tuple[int, int], pads: tuple[int, int, int, int]) -> Tensor:
    """torch's convolution (NCHW, OIHW) of NHWC by HWCF; `pads` are left, right, top, bottom."""
    padded = peers.torch.nn.functional.pad(x.permute(0, 3, 1, 2), pads)
    return peers.torch.nn.functional.conv2d(padded, w.permute(3, 2, 0, 1), stride=strides).permute(0, 2, 3, 1)


@pytest.mark.parametrize("name", FORWARD)
def test_values(name: str) -> None:
    shapes, line, formula = FORWARD[name]
    text = "".join(f"%{i} = Input {{name=x{i}}} : tensor<f64{s}>\n" for i, s in enumerate(shapes))
    program = good(f"{text}%9 = {line}\noutputs: %9\n")
    rng = np.random.default_rng(6)
    inputs = [rng.uniform(-1, 1, s) for s in shapes]
    want = formula(*map(peers.torch.tensor, inputs)).numpy()
    np.testing.assert_allclose(run(program, inputs)[0], want, rtol=1e-12, atol=1e-13)


def mlp(x, w1, b1, w2, b2, y):  # type: ignore[no-untyped-def]
    return ((peers.torch.relu(x @ w1 + b1) @ w2 + b2 - y) ** 2).mean()


def cnn(x, f1, f2, w, y):  # type: ignore[no-untyped-def]
    first = peers.torch.relu(conv(x, f1, (2, 1), (1, 1, 0, 1)))
    second = peers.torch.relu(conv(first, f2, (1, 2), (0, 2, 1, 0)))
    return ((second.mean((1, 2)) @ w - y) ** 2).mean()


def attention(table, tokens, wq, wk, wv):  # type: ignore[no-untyped-def]
    rows = table[tokens]
    weights = peers.torch.softmax((rows @ wq) @ (rows @ wk).T * 0.5, 1)
    scores = peers.torch.log_softmax(weights @ (rows @ wv) @ table.T, 1)
    return -scores[:4][peers.torch.arange(4), tokens[1:]].mean()


EXAMPLES = {"60_mlp_loss": mlp, "61_cnn_loss": cnn, "62_attention_loss": attention}


@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, rate: float) -> None:
    """The gradients of the programs that the documents show, in f64, and a step against them."""
    text = (TESTDATA / "mind" / f"{name}.mind.ir").read_text("utf-8").replace("f32", "f64").replace("F32", "F64")
    program, context = good(text), PassContext()
    rng = np.random.default_rng(7)
    whole = [np.asarray([3, 1, 6, 1, 0], np.int32) if p.type.dtype is SI32 else rng.uniform(-1, 1, p.type.static_shape)
             for p in program.main.params]  # fmt: skip
    run_pipeline(program, f"autodiff{{rate={rate}}},canonicalize", context)
    assert verify(program, context.diagnostics)
    leaves = [peers.torch.tensor(x, requires_grad=x.dtype == np.float64) for x in whole]
    loss = EXAMPLES[name](*(x.long() if x.dtype == peers.torch.int32 else x for x in leaves))
    loss.backward()
    floats = [x for x in leaves if x.requires_grad]
    wanted = [(x - rate * x.grad if rate else x.grad).detach().numpy() for x in floats]
    for got, want in zip(run(program, whole), [loss.detach().numpy(), *wanted], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


PLAIN: dict[str, Callable[..., Tensor]] = {
    "Add": lambda x, y: x + y, "Sub": lambda x, y: x - y, "Mul": lambda x, y: x * y, "Neg": lambda x: -x,
    "Exp": lambda x: x.exp(), "Log": lambda x: x.log(), "Dot": lambda x, y: x @ y, "MatMul": lambda x, y: x @ y,
    "Relu": lambda x: peers.torch.where(x > 0, x, peers.torch.zeros_like(x)),
    "Gather": lambda x, i: x[i.long()],
}  # fmt: skip


def in_torch(op: Op, *operands: Tensor) -> Tensor:
    """What an instruction of Core v1 gives, by torch."""
    short, named, x = op.defn.short, op.defn.named(op.attrs), operands[0] if operands else peers.torch.zeros(())
    if op.defn.is_constant:
        return peers.torch.tensor(np.array(from_literal(named["value"])))
    if short in PLAIN:
        return PLAIN[short](*operands)
    if short in ("Sum", "Mean"):
        axes = [a % x.ndim for a in named["axes"]] or list(range(x.ndim))
        total = x.sum(axes, keepdim=bool(named["keepdims"] and named["axes"])) if axes else x
        n = int(np.prod([x.shape[a] for a in axes]))
        whole = peers.torch.div(total, n, rounding_mode=None if x.dtype.is_floating_point else "trunc")
        return total if short == "Sum" else whole
    if short == "Transpose":
        return x.permute(*named["permutation"]) if x.ndim else x
    if short == "Index":
        return x[tuple(named["indices"])]
    if short == "Slice":
        bounds = zip(named["starts"], named["ends"], named["steps"], strict=True)
        for axis, (a, b, step) in enumerate(bounds):
            places = range(max(a, 0), min(max(b, 0), x.shape[axis]), step)
            x = x.index_select(axis, peers.torch.tensor(list(places), dtype=peers.torch.int64))
        return x
    if short == "Conv2d":
        (top, bottom), (left, right) = pads(tuple(x.shape), tuple(operands[1].shape), named["strides"], named["padding"])
        image = peers.torch.nn.functional.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom)).double().contiguous()
        found = peers.torch.conv2d(image, operands[1].permute(3, 2, 0, 1).double().contiguous(), stride=named["strides"])
        return found.permute(0, 2, 3, 1).to(x.dtype)
    return x.reshape(op.result.type.static_shape)


@pytest.mark.parametrize("seed", range(80))
def test_gradients_of_generated_modules(seed: int) -> None:
    """Of the sum of what a module of all operations computes, wherever that is a number."""
    program = generate(Seeded(seed), dtypes=(F64, F64, SI64), size=10)
    main = program.main
    floats = [v for op in main.body for v in op.results if v.type.dtype is F64 and 0 not in v.type.static_shape]
    total = None
    for v in [v for v in dict.fromkeys(main.results) if v in floats] or floats[-1:]:
        for short, operands, attrs in (("Sum", [v], {"axes": (), "keepdims": False}), ("Add", [total], {})):
            if operands == [None]:
                continue
            op = create(OPS[f"mind.{short}"], operands if short == "Sum" else [*operands, main.body[-1].result], attrs)
            main.body.append(op)
        total = main.body[-1].result
    if total is None or all(p.type.dtype is not F64 for p in main.params):
        return
    main.results, main.result_types = [total], [total.type]
    for i, v in enumerate([*main.params, *(v for op in main.body for v in op.results)]):
        v.name = f"v{i}"
    program = good(show(program))
    rng, main = np.random.default_rng(seed), program.main
    inputs = [
        rng.uniform(0.2, 1.5, p.type.static_shape) if p.type.dtype is F64 else np.asarray(rng.integers(0, 2, p.type.static_shape))
        for p in main.params
    ]
    known = {p: peers.torch.tensor(x, requires_grad=x.dtype.kind == "f") for p, x in zip(main.params, inputs, strict=True)}
    leaves = [x for x in known.values() if x.requires_grad]
    try:
        for op in main.body:
            known[op.result] = in_torch(op, *(known[v] for v in op.operands))
    except IndexError:  # data that is no index
        return
    loss = known[main.results[0]]
    if not bool(peers.torch.isfinite(loss)):
        return
    found = peers.torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(leaves)
    run_pipeline(program, "autodiff,canonicalize", context := PassContext())
    assert verify(program, context.diagnostics)
    with np.errstate(all="ignore"):
        got = run(program, inputs)
    for leaf, want, mine in zip(leaves, found, got[1:], strict=True):
        expected = np.zeros(leaf.shape) if want is None else want.numpy()
        finite = np.isfinite(expected)
        np.testing.assert_allclose(mine[finite], expected[finite], rtol=1e-10, atol=1e-10)
