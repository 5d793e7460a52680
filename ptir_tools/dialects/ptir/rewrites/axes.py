"""Normal forms of attributes: axes are the default or counted from the front, reduced axes are sorted, implied dtypes are left
out. Constants are operands on the right."""

from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import COMMUTES, Attribute, Op, create, operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.patterns import Effect, OpView, Pattern, rewrites

# The attributes that hold axes, and the operand whose axes they are.
_AXES = {
    "argmax": {"axis": 0},
    "concat": {"axis": 0},
    "gather": {"axis": 0},
    "scatter_reduce": {"axis": 0},
    "layer_norm": {"feature_axis": 0},
    "transpose": {"perm": 0},
    "top_k": {"axis": 0},
    "quantize": {"axis": 0},
    "requantize": {"axis": 0},
    "dequantize": {"axis": 0},
    "reduce_sum": {"axes": 0},
    "reduce_max": {"axes": 0},
    "reduce_min": {"axes": 0},
    "reduce_window": {},
    "dot_general": {"batch_lhs": 0, "batch_rhs": 1, "contract_lhs": 0, "contract_rhs": 1},
}


_FOUND_NORMAL: set[object] = set()  # signatures: what is found is found once, however many ops have it


@rewrites(*(f"ptir.{name}" for name in _AXES), benefit=4, depth=1)
def normal_attributes(op: OpView) -> bool:
    """Count axes from the front, unless the default means the same axis; sort the axes of a reduction; leave out dtypes that the
    operand implies."""
    root = op.root
    signature = (root.defn, root.attrs, tuple([operand_type(x) for x in root.operands]))
    if signature in _FOUND_NORMAL:
        return False
    given = root.defn.named(root.attrs)
    normal = given | _normal_axes(root, given) | _normal_dtypes(root, given)
    if normal == given:
        _FOUND_NORMAL.add(signature)
        return False
    groups = root.defn.split(root.attrs, root.operands)
    types = [v.type for v in root.results]
    return op.replace(op.rw.insert_before(root, create(root.defn, groups, normal, types=types)))


def _normal_axes(root: Op, given: dict[str, Attribute]) -> dict[str, object]:
    normal: dict[str, Attribute] = {}
    for name, operand in _AXES[root.defn.short].items():
        t = operand_type(root.operands[operand])
        if not isinstance(t, TensorType) or given[name] is None:
            continue
        if isinstance(given[name], int):
            default = root.defn.attrs[root.defn.attr_index[name]].default
            axis = given[name] % t.rank
            normal[name] = default if isinstance(default, int) and default % t.rank == axis else axis
        else:
            axes = helpers.axes(given[name], t.rank)
            normal[name] = tuple(sorted(axes)) if name == "axes" else axes
    return normal


def _normal_dtypes(root: Op, given: dict[str, object]) -> dict[str, object]:
    """`given` with None for an accumulator and a result dtype that are the defaults."""
    source = helpers.dtype(root.operands[0])
    implied = {"accum_dtype": default_accum(source), "out_dtype": source}
    return {name: None for name, dtype in implied.items() if given.get(name) is dtype}


_COMMUTATIVE = [d.name for d in OPS.values() if d.name.startswith("ptir.") and COMMUTES in d.traits]
_CONSTANTS = ("ptir.constant", "ptir.broadcast_to")


@rewrites(*_COMMUTATIVE, operands=_CONSTANTS, at=0, effect=Effect.NAN_PAYLOAD)
def constant_right(op: OpView) -> bool:
    """A commutative op has its constant on the right."""
    x, y = op.root.operands
    if not helpers.constant(x) or helpers.constant(y):
        return False
    op.rw.set_operands(op.root, (y, x))
    return True


_EXACT = ("ptir.add", "ptir.mul", "ptir.maximum", "ptir.minimum", "ptir.compare_eq", "ptir.compare_ne")


@rewrites(*_EXACT, operands=_CONSTANTS, at=0)
def number_right(op: OpView) -> bool:
    """The same for the operands of a comparison. Other results of reals stay equal to the bit if the constant has no NaN."""
    x, _ = op.root.operands
    compared = op.root.defn.family == "compare"
    return (compared or (helpers.real(x) and helpers.number(x))) and constant_right.function(op)


AXES: list[Pattern] = [normal_attributes, constant_right, number_right]
