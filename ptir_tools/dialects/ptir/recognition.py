"""Kernels of networks out of their decompositions: the examples of `kernels/`, what must hold beside, and what stands for them.

What stands for a kernel is the op `layer_norm`, a custom call of gpt.rs where it has one that fits, or one of this toolkit's.
All but the op are also found again by their decomposition (`expansion`). A kernel of which something inside is read elsewhere
stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import isfinite, prod
from typing import Any

from ptir_tools.core.constants import scalar_of
from ptir_tools.core.dtypes import F32, F64
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.opdef import ELEMENTWISE, OPS, create
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.dialects.ptir.examples import Example, Match, close
from ptir_tools.dialects.ptir.fusion import attrs
from ptir_tools.dialects.ptir.ops.kinds import AttrValue
from ptir_tools.dialects.ptir.rules import helpers
from ptir_tools.dialects.ptir.rules.contractions import Factor, trace

Build = Callable[["Found"], Value | None]
Number = tuple[str, AttrValue]


@dataclass(slots=True, frozen=True)
class Found:
    """A match about to be replaced: what forms ask of it, and the ops that they make before its root."""

    match: Match
    rw: Rewriter

    @property
    def root(self) -> Op:
        return self.match.root

    def input(self, name: str) -> Operand:
        """What binds a parameter of the kernel."""
        return self.match.inputs[name]

    def op(self, name: str) -> Op:
        """What stands for an op of the kernel."""
        return self.match.ops[name]

    def call(self, target: str, *operands: Operand, **given: Number) -> Value:
        """A custom call of the type of the root."""
        values = {"target": target, "attrs": attrs(**given)}
        made = create(OPS["ptir.custom_call"], [operands], values, types=[self.root.result.type])
        return self.rw.insert_before(self.root, made)

    def build(self, name: str, *operands: Operand, **given: Any) -> Value:
        """An op before the root."""
        return self.rw.build(self.root, name, *operands, **given)

    def last(self, axis: int) -> int:
        """`axis` of the root, -1 where it is the last."""
        return -1 if axis == helpers.rank(self.root) - 1 else axis


# What must hold beside the structure: which axes are reduced, and along which others are repeated.


def feature_axis(found: Found) -> int | None:
    """The one axis, counted as the root's, that every reduction is over, when all that is repeated is repeated along it alone:
    then each op reads of its operands what the kernel's does. None when something else is computed."""
    reductions = [op for op in found.match.ops.values() if op.defn.family == "reduce"]
    axes = {helpers.axes(op.attr("axes"), helpers.rank(op.operands[0])) for op in reductions}
    ranks = {helpers.rank(op.operands[0]) for op in reductions}
    if (
        len(axes) != 1
        or ranks != {helpers.rank(found.root)}
        or not helpers.static(found.root)
        or not helpers.floating(found.root)
    ):
        return None
    reduced = axes.pop()
    return reduced[0] if len(reduced) == 1 and _axes_agree(found, reduced[0]) else None


def _axes_agree(found: Found, axis: int) -> bool:
    """Follow each axis of the root down to the inputs: every value has the same axes in whatever way it is reached, and the
    inputs that are not numbers have those of the root."""
    shape = helpers.shape(found.root)
    whole = [None if d == 1 else i for i, d in enumerate(shape)]
    ends = {x for x in found.match.inputs.values() if scalar_of(x) is None}
    known: dict[Operand, list[int | None]] = {found.root.result: whole}
    for op in sorted(found.match.ops.values(), key=found.rw.order.place, reverse=True):
        if (mine := known.get(op.result)) is None:
            return False
        if op.defn.family == "reduce":
            kept = mine if op.attr("keepdims") else [*mine[:axis], None, *mine[axis:]]
            mine = [(axis if shape[axis] != 1 else None) if i == axis else a for i, a in enumerate(kept)]
        elif ELEMENTWISE not in op.defn.traits:
            return False
        for x in op.operands:
            if scalar_of(x) is None:
                factor = trace(x, ends)
                below: list[int | None] = [None] * helpers.rank(factor.source)
                for label, a in zip(mine, factor.axes, strict=True):
                    if a is not None:
                        below[a] = label
                if known.setdefault(factor.source, below) != below:
                    return False
    return all(known.get(x) == whole for x in ends)


def vector(found: Found, name: str, axis: int) -> Operand | None:
    """The vector along `axis` that the input `name` repeats along all other axes."""
    extent = helpers.shape(found.root)[axis]
    factor: Factor = trace(found.input(name))
    if helpers.count(factor.source) != extent or any(factor.reads(i) for i in range(len(factor.axes)) if i != axis):
        return None
    if helpers.shape(factor.source) == (extent,):
        return factor.source
    return found.build("reshape", factor.source, new_shape=(extent,))


def averages(found: Found, axis: int) -> bool:
    """Whether `n`, by which sums are multiplied or divided, makes means of them, and `epsilon` is a positive number."""
    extent = helpers.shape(found.root)[axis]
    n, epsilon = found.match.number("n"), found.match.number("epsilon")
    mean = next(op for name, op in found.match.ops.items() if name in ("mean", "variance"))
    if not isinstance(extent, int) or not extent:
        return False
    right = n == extent if mean.defn.name == "ptir.div" else close(n, helpers.dtype(found.root), 1 / extent, F64)
    return bool(right and isfinite(epsilon) and epsilon >= 0)


# The forms: what stands for a kernel that was found, or None


def softmax(found: Found) -> Value | None:
    """gpt.rs's target over the last axis of f32, else this toolkit's."""
    if (axis := feature_axis(found)) is None:
        return None
    x = found.input("x")
    last = axis == helpers.rank(found.root) - 1
    if last and helpers.dtype(x) is F32:
        return found.call("gpt_rs.triton.fused_softmax_last_axis.f32.v1", x, axis=("I64", axis))
    return found.call("ptir.softmax.v1", x, axis=("I64", found.last(axis)))


def layer_norm(found: Found) -> Value | None:
    """The op of the contract."""
    if (axis := feature_axis(found)) is None or not averages(found, axis):
        return None
    gamma, beta = (vector(found, name, axis) for name in ("gamma", "beta"))
    if gamma is None or beta is None:
        return None
    epsilon = float(found.match.number("epsilon"))
    return found.build("layer_norm", found.input("x"), gamma, beta, epsilon=epsilon, feature_axis=found.last(axis))


def rms_norm(found: Found) -> Value | None:
    """A call of this toolkit's."""
    if (axis := feature_axis(found)) is None or not averages(found, axis):
        return None
    if (gamma := vector(found, "gamma", axis)) is None:
        return None
    epsilon = float(found.match.number("epsilon"))
    return found.call("ptir.rms_norm.v1", found.input("x"), gamma, axis=("I64", found.last(axis)), eps=("F64", epsilon))


def gelu(found: Found) -> Value | None:
    """A call of this toolkit's, exact or by tanh as the kernel is."""
    approximate = "tanh" if "tanh" in found.match.example.kernel.name else "none"
    return (
        found.call("ptir.gelu.v1", found.input("x"), approximate=("String", approximate))
        if helpers.floating(found.root)
        else None
    )


def silu(found: Found) -> Value | None:
    """A call of this toolkit's."""
    return found.call("ptir.silu.v1", found.input("x")) if helpers.floating(found.root) else None


def attention(found: Found) -> Value | None:
    """A call of this toolkit's; queries, keys and values are laid as it wants them, a mask is given before it was repeated."""
    rank = helpers.rank(found.root)
    scores, product, weights = found.op("scores"), found.root, found.op("weights")
    over = dict(weights.attr("attrs"))["axis"][1]
    scale = found.match.number("scale") if "scale" in found.match.inputs else 1
    divided = "scaled" in found.match.ops and found.op("scaled").defn.name == "ptir.div"
    sides = [(scores, 0, rank - 1), (scores, 1, rank - 1), (product, 1, rank - 2)]
    swapped = [_swapped(op, side, at) for op, side, at in sides]
    straight = _swapped(product, 0, rank - 1) is False and rank == helpers.rank(scores) and over in (-1, rank - 1)
    if not straight or None in swapped or not isfinite(scale) or (divided and not scale) or not helpers.floating(found.root):
        return None
    operands = [_transposed(found, found.input(name), bool(turn)) for name, turn in zip(("q", "k", "v"), swapped, strict=True)]
    if "mask" in found.match.inputs:
        operands.append(_before_broadcast(found.input("mask")))
    return found.call("ptir.attention.v1", *operands, scale=("F64", 1 / scale if divided else float(scale)))


def _swapped(dot: Op, side: int, wanted: int) -> bool | None:
    """Whether one side of a stack of matrix products is contracted along the other one of its last two axes than `wanted`;
    None when it is no such stack."""
    batch, contract = (dot.attr(f"{what}_{'lr'[side]}hs") for what in ("batch", "contract"))
    rank = helpers.rank(dot.operands[side])
    contract = helpers.axes(contract, rank)
    if helpers.axes(batch, rank) != tuple(range(rank - 2)) or len(contract) != 1:
        return None
    return contract[0] != wanted


def _transposed(found: Found, x: Operand, swap: bool) -> Operand:
    n = helpers.rank(x)
    return found.build("transpose", x, perm=(*range(n - 2), n - 1, n - 2)) if swap else x


def _before_broadcast(x: Operand) -> Operand:
    while isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.broadcast_to":
        x = x.op.operands[0]
    return x


def convolution(found: Found) -> Value | None:
    """gpt.rs's target for f32, else this toolkit's with one group."""
    geometry, dot = _geometry(found, found.root, 3), found.root
    taps = _taps(dot, 3)
    if geometry is None or taps is None or dot.attr("batch_lhs") or helpers.rank(dot.operands[1]) != len(taps) + 1:
        return None
    outputs = next(i for i in range(len(taps) + 1) if i not in taps)
    weight = _packed(found, dot.operands[1], (*taps, outputs), helpers.tensor_type(dot).static_shape[3])
    if helpers.dtype(dot) is F32:
        return found.call("gpt_rs.c.conv2d.nhwc.f32.v1", found.input("x"), weight, **geometry)
    return found.call("ptir.conv2d.nhwc.v1", found.input("x"), weight, **geometry, groups=("I64", 1))


def grouped_convolution(found: Found) -> Value | None:
    """gpt.rs's target for f32 where every channel is a group of its own, else this toolkit's."""
    dot, moved = found.op("product"), found.op("moved")
    group = helpers.rank(dot.operands[0]) - 2
    geometry, taps = _geometry(found, dot, group), _taps(dot, 3, group)
    right = helpers.rank(dot.operands[1])
    batch = helpers.axes(dot.attr("batch_rhs"), right)
    if geometry is None or taps is None or len(batch) != 1 or right != len(taps) + 2 or helpers.rank(found.root) != 4:
        return None
    straight = len(moved.attr("perm")) == 5 and helpers.axes(moved.attr("perm"), 5) == (1, 2, 3, 0, 4)
    if not straight or helpers.axes(dot.attr("batch_lhs"), group + 2) != (group,):
        return None
    outputs = next(i for i in range(right) if i not in (*taps, *batch))
    groups, channels = helpers.tensor_type(dot.operands[0]).static_shape[group:]
    if channels == 1 == helpers.shape(dot)[4] and helpers.dtype(dot) is F32:
        weight = _packed(found, dot.operands[1], (*batch, *taps, outputs), None)
        return found.call("gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1", found.input("x"), weight, **geometry)
    weight = _packed(found, dot.operands[1], (*taps, *batch, outputs), helpers.tensor_type(found.root).static_shape[3])
    return found.call("ptir.conv2d.nhwc.v1", found.input("x"), weight, **geometry, groups=("I64", groups))


def _geometry(found: Found, dot: Op, channels: int) -> dict[str, Number] | None:
    """The attributes of a convolution, when `dot` contracts patches of two axes, padded with zeros, whose elements are laid by
    tap up to its axis `channels`, or all as one; None for anything else."""
    patches = found.op("patches")
    pads, laid, whole = patches.attr("padding"), helpers.shape(dot.operands[0]), helpers.shape(patches)
    zero = not any(map(any, pads)) or patches.attr("pad_value").value == 0
    same = helpers.dtype(found.root) is helpers.dtype(patches) and helpers.floating(patches)
    if not (zero and same and helpers.static(found.root, patches, *dot.operands) and len(whole) == 4 and laid[:3] == whole[:3]):
        return None
    if channels > 3 and prod(helpers.tensor_type(dot.operands[0]).static_shape[3:channels]) != prod(patches.attr("window")):
        return None
    lists = {name: ("I64Array", tuple(patches.attr(name))) for name in ("window", "strides", "dilation")}
    return {**lists, "padding": ("I64Array", tuple(n for pair in pads for n in pair))}


def _taps(dot: Op, start: int, but: int | None = None) -> tuple[int, ...] | None:
    """The axes of the weights that are contracted, in the order of those of the patches, which are all from `start` on but
    `but`; None when others are."""
    lhs = helpers.axes(dot.attr("contract_lhs"), helpers.rank(dot.operands[0]))
    rhs = helpers.axes(dot.attr("contract_rhs"), helpers.rank(dot.operands[1]))
    if sorted(lhs) != [i for i in range(start, helpers.rank(dot.operands[0])) if i != but]:
        return None
    return tuple(r for _, r in sorted(zip(lhs, rhs, strict=True)))


def _packed(found: Found, weight: Operand, perm: Sequence[int], columns: int | None) -> Operand:
    """Weights as a matrix: its axes in another order, then all before `columns` outputs, or None: all but the first, as one."""
    shape = tuple(d for i in perm if isinstance(d := helpers.shape(weight)[i], int))
    if tuple(perm) != tuple(range(len(shape))):
        weight = found.build("transpose", weight, perm=tuple(perm))
    matrix = (shape[0], prod(shape[1:])) if columns is None else (prod(shape) // max(columns, 1), columns)
    return weight if matrix == shape else found.build("reshape", weight, new_shape=matrix)


def biased(found: Found) -> Value | None:
    """The convolution with a bias."""
    call = found.op("product")
    bias = vector(found, "bias", 3) if len(call.operands) == 2 and helpers.rank(found.root) == 4 else None
    if bias is None:
        return None
    return found.call(call.attr("target"), *call.operands, bias, **dict(call.attr("attrs")))


@dataclass(slots=True, frozen=True)
class Form:
    """The kernels of a file, what they skip, and what stands for them."""

    build: Build
    examples: Sequence[Example]


_ROWS = ("reshape", "broadcast_to")
_SOFTMAX = ("ptir.softmax.v1", "gpt_rs.triton.fused_softmax_last_axis.f32.v1")


@cache
def forms() -> Sequence[Form]:
    """The forms, in the order in which they are to be sought."""
    table: Sequence[tuple[str, Build, tuple[str, ...]]] = (
        ("layer_norm", layer_norm, _ROWS),
        ("rms_norm", rms_norm, _ROWS),
        ("softmax", softmax, _ROWS),
        ("gelu", gelu, ()),
        ("gelu_tanh", gelu, ()),
        ("silu", silu, ()),
        ("attention", attention, ()),
        ("convolution", convolution, ("reshape",)),
        ("grouped_convolution", grouped_convolution, ()),
        ("bias", biased, ()),
    )
    return [Form(build, _examples(name, skip)) for name, build, skip in table]


def _examples(name: str, skip: tuple[str, ...]) -> list[Example]:
    """The kernels of a file; those on a softmax once for each call that means one."""
    text = files(__package__).joinpath("kernels", f"{name}.ptir").read_text("utf-8")
    texts = dict.fromkeys(text.replace(_SOFTMAX[0], target) for target in _SOFTMAX)
    return [example for t in texts for example in Example.read(t, skip=skip).values()]


def recognize(form: Form, op: Op, rw: Rewriter) -> bool:
    """Let a kernel of `form` that ends at `op` be what stands for it."""
    for example in form.examples:
        match = example.match(op, rw)
        if match is not None and match.closed and (made := form.build(Found(match, rw))) is not None:
            rw.replace_all_uses(op.result, made)
            rw.erase(op)
            for inner in sorted(match.interior, key=rw.order.place, reverse=True):
                if rw.unused(inner):
                    rw.erase(inner)
            return True
    return False
