"""gpt.rs's operation kinds and the ops of this dialect: the one table that the dump and the JSON share."""

from __future__ import annotations

import re
from functools import cache

from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.ir import Attr, OpDef
from ptir_tools.core.records import dataclass
from ptir_tools.dialects.ptir import DIALECT

RUST_DTYPE: dict[DType, str] = {d: d.name.capitalize() for d in PTIR_DTYPES}
RUST_DTYPE |= {d: d.name.replace("_e", "E").replace("fp", "Fp").replace("m", "M") for d in PTIR_DTYPES if "fp8" in d.name}
DTYPE_OF: dict[str, DType] = {name: d for d, name in RUST_DTYPE.items()}


@dataclass(slots=True, frozen=True)
class Kind:
    """A variant of gpt.rs's `Operation`.

    `struct` names its payload's struct, "" when it has none. `ops` maps sub-kinds to ops of this dialect: the sub-kind is
    the payload's field `field`, or the whole payload when `field` is "". A kind that is one op has the single key "".
    """

    name: str
    struct: str
    ops: dict[str, str]
    field: str = ""


# The kinds that are several ops: the sub-kinds, and the field that has them.
_UNARY = ("Neg", "Abs", "Exp", "Log", "Tanh", "Erf", "Rsqrt", "Reciprocal")
_BINARY = ("Add", "Sub", "Mul", "Div", "Maximum", "Minimum")
_COMPARE = {
    "Less": "lt", "LessEqual": "le", "Equal": "eq", "GreaterEqual": "ge", "Greater": "gt", "NotEqual": "ne",
}  # fmt: skip
_SEVERAL: dict[str, tuple[dict[str, str], str]] = {
    "ElementwiseUnary": ({k: k.lower() for k in _UNARY}, ""),
    "ElementwiseBinary": ({k: k.lower() for k in _BINARY}, ""),
    "Reduce": ({k: f"reduce_{k.lower()}" for k in ("Sum", "Max", "Min")}, "kind"),
    "Compare": ({k: f"compare_{v}" for k, v in _COMPARE.items()}, "op"),
}
# The structs that are not called like their kind.
_STRUCTS = {"Constant": "TensorLiteral", "ScatterAdd": "ScatterSpec"}
_STRUCTS |= dict.fromkeys(("ElementwiseUnary", "ElementwiseBinary", "Select", "StopGradient", "Take", "Clamp"), "")
# In gpt.rs's order. The last two are in the contract and not in gpt.rs: they are read, never written.
_NAMES = """
    Constant ElementwiseUnary ElementwiseBinary DotGeneral Reduce ArgMax Compare Select Cast StopGradient Reshape Transpose
    BroadcastTo Slice Concat Pad Tile Iota Take Gather ScatterAdd ScatterReduce DynamicSlice DynamicUpdateSlice Cond While Scan
    ExtractPatches ReduceWindow RngUniform RngNormal TopK SegmentReduce Quantize Dequantize Requantize CustomCall LayerNorm Clamp
"""


def _kind(name: str) -> Kind:
    op = "argmax" if name == "ArgMax" else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    ops, field = _SEVERAL.get(name, ({"": op}, ""))
    return Kind(name, _STRUCTS.get(name, f"{name}Spec"), ops, field)


KINDS: tuple[Kind, ...] = tuple(map(_kind, _NAMES.split()))
KIND: dict[str, Kind] = {k.name: k for k in KINDS}
SPELLED: dict[str, tuple[Kind, str]] = {op: (k, sub) for k in KINDS for sub, op in k.ops.items()}
NOT_UPSTREAM = ("layer_norm", "clamp")
# Attributes that gpt.rs's payloads have no field for.
_STEPS = ("scales", "zero_points", "output_scales", "output_zero_points")
_OURS = frozenset({("rng_uniform", "stream"), ("rng_normal", "stream")}) | {
    (op, name) for op in ("quantize", "requantize", "dequantize") for name in _STEPS
}

# Axes that gpt.rs stores unsigned, and the operand whose axes they are; None is the result. `axis` of other ops is signed.
UNSIGNED_AXES: dict[str, int | None] = {
    "axes": 0, "perm": 0, "batch_lhs": 0, "contract_lhs": 0, "batch_rhs": 1, "contract_rhs": 1, "update_window_dims": 2,
    "inserted_window_dims": 0, "scatter_dims_to_operand_dims": 0, "index_vector_dim": 1,
}  # fmt: skip
UNSIGNED_AXIS: dict[str, int | None] = {"iota": None, "quantize": 0, "dequantize": 0, "requantize": 0}


@cache
def ops() -> dict[str, OpDef]:
    """The ops of the dialect by short name."""
    return DIALECT.ops


# Payloads whose fields are in another order than the attributes.
_ORDER = {"segment_reduce": ("kind", "num_segments", "accum_dtype", "indices_are_sorted", "unique")}


@cache
def fields(op: str) -> tuple[Attr, ...]:
    """The attributes of an op that are fields of gpt.rs's payload, in its order; the regions come before them."""
    attrs = {a.name: a for a in ops()[op].attrs if (op, a.name) not in _OURS}
    return tuple(attrs[name] for name in _ORDER.get(op, attrs))
