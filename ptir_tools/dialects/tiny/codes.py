"""Every code of Tiny programs, with a wrong and a right program (`ptir explain`)."""

from __future__ import annotations

from ptir_tools.core.dialect import Code

_X = '{"id":"x", "uop":"INPUT", "arg":{"tensor_id":"X", "dtype":"fp32", "shape":[3, 4]}}'


def _graph(*nodes: str, rest: str = "") -> str:
    return '{"uops":[\n  ' + ",\n  ".join((_X, *nodes)) + f"\n]{rest}}}\n"


def _node(uop: str, arg: str = "", src: str = '"x"', id: str = "y") -> str:
    return f'{{"id":"{id}", "uop":"{uop}", "src":[{src}]' + (f', "arg":{{{arg}}}}}' if arg else "}")


def _other(dtype: str = "fp32", shape: str = "[3, 4]", name: str = "w") -> str:
    return f'{{"id":"{name}", "uop":"INPUT", "arg":{{"tensor_id":"{name}", "dtype":"{dtype}", "shape":{shape}}}}}'


def _code(code: str, meaning: str, wrong: str = "", right: str = "") -> Code:
    return Code(code, meaning, wrong, right, "tiny")


def _expanded(name: str) -> str:
    return _node("EXPAND", '"result_shape":[3, 4]', f'"{name}"', "e")


_ROW_MAX = _node("REDUCE", '"op":"MAX", "axes":[1], "dtype":"fp32"', id="s")
_PAIR = _node("ADD", src='"x", "w"')
_GOOD = _graph(_other(), _PAIR)
_FIVE = '{"id":"v", "uop":"INPUT", "arg":{"tensor_id":"V", "dtype":"fp32", "shape":[2, 2, 2, 2, 2]}}'
_SQUARE = '{"id":"q", "uop":"INPUT", "arg":{"tensor_id":"Q", "dtype":"fp32", "shape":["M", "M"]}}'

ERRORS = (
    _code(
        "BroadcastMismatch",
        "Two shapes, aligned from the right, have different extents and neither is 1. Different symbols count as "
        "different. Or the broadcast_dimensions of an EXPAND do not fit, or an operand could be aligned in two ways.",
        _graph(_other(shape="[3, 5]"), _PAIR),
        _GOOD,
    ),
    _code(
        "AxisSizeMismatch",
        "A RESHAPE changes the number of elements, or no integer for its unknown symbol keeps the number.",
        _graph(_node("RESHAPE", '"result_shape":[2, 5]')),
        _graph(_node("RESHAPE", '"result_shape":[2, 6]')),
    ),
    _code(
        "InvalidPermutation",
        "`perm` of PERMUTE does not have every axis of the source exactly once. Negative axes are not allowed.",
        _graph(_node("PERMUTE", '"perm":[1, 1]')),
        _graph(_node("PERMUTE", '"perm":[1, 0]')),
    ),
    _code(
        "AccDtypeMissing",
        "A REDUCE has no `dtype`. It is the dtype of the accumulator, and has no default.",
        _graph(_node("REDUCE", '"op":"SUM", "axes":[1]')),
        _graph(_node("REDUCE", '"op":"SUM", "axes":[1], "dtype":"fp32"')),
    ),
    _code(
        "ExcessivePiecewise",
        "A chain of PAD, SHRINK and VIEW divides the index domain of a value into more than 128 pieces (--max-pieces).",
        _graph(_FIVE, _node("PAD", '"pad":[[1, 1], [1, 1], [1, 1], [1, 1], [1, 1]]', '"v"')),
        _graph(_FIVE, _node("PAD", '"pad":[[1, 1], [1, 1], [1, 1], [1, 1], [0, 0]]', '"v"')),
    ),
    _code("SyntaxError", "The text is not JSON with comments.", '{"uops":[}\n', '{"uops":[]}\n'),
    _code(
        "InvalidNode",
        'A graph is an object with a list "uops" of nodes. A node has a string `id` and a `uop`, and may have `src`, `arg` '
        "and `tag`.",
        _graph('{"id":"y", "uop":"NEG", "src":["x"], "out":"y"}'),
        _graph(_node("NEG")),
    ),
    _code(
        "DuplicateId",
        "Two nodes have the same id, or two INPUTs the same tensor_id.",
        _graph(_node("NEG"), _node("RELU")),
        _graph(_node("NEG"), _node("RELU", id="z")),
    ),
    _code(
        "UndefinedNode",
        "`src` or `outputs` names a node that the graph does not have.",
        _graph(_node("NEG", src='"w"')),
        _graph(_node("NEG")),
    ),
    _code(
        "CycleDetected",
        "A node depends on itself. Nodes may be listed in any order, but cycles are not allowed.",
        _graph(_node("ADD", src='"x", "z"'), _node("NEG", src='"y"', id="z")),
        _graph(_node("ADD", src='"x", "z"'), _node("NEG", src='"x"', id="z")),
    ),
    _code(
        "UnknownUop",
        "The `uop` is not in the vocabulary. POOL, which the specification uses once, is accepted in profile seed only.",
        _graph(_node("CONTRACT")),
        _graph(_node("NEG")),
    ),
    _code(
        "InvalidSource",
        "A UOp has the wrong number of sources, a source that is neither an id nor an immediate, or only immediates.",
        _graph(_node("ADD")),
        _graph(_node("ADD", src='"x", 1')),
    ),
    _code(
        "InvalidArg",
        "An entry of `arg` is missing, unknown, of the wrong form, or out of range.",
        _graph(_node("SHRINK", '"lo":[0, 1], "hi":[3, 5]')),
        _graph(_node("SHRINK", '"lo":[0, 1], "hi":[3, 4]')),
    ),
    _code(
        "UnknownDtype",
        "The dtypes are fp16, bf16, fp32, i32 and bool.",
        _graph(_node("CAST", '"to":"float32"')),
        _graph(_node("CAST", '"to":"fp32"')),
    ),
    _code(
        "DtypeMismatch",
        "Operands differ in dtype, or a UOp does not take their dtype. There are no implicit casts. Only profile seed "
        "widens fp16 and bf16 next to fp32, with a note.",
        _graph(_other("i32"), _PAIR),
        _graph(_other("i32"), _node("CAST", '"to":"fp32"', '"w"', "c"), _node("ADD", src='"x", "c"')),
    ),
    _code(
        "ExpandMissing",
        "Operands differ in shape and need an EXPAND: no other UOp broadcasts. Profile seed inserts it, with a note.",
        _graph(_other(shape="[4]"), _PAIR),
        _graph(_other(shape="[4]"), _node("EXPAND", '"result_shape":[3, 4]', '"w"', "e"), _node("ADD", src='"x", "e"')),
    ),
    _code(
        "AxisAlignmentMismatch",
        "Two inputs, or an input and dims, give a symbol different values.",
        _graph(_other(shape='["M"]', name="a"), _other(shape='["M"]', name="b"), _node("NEG"), rest=', "dims":{"M":2}'),
        _graph(_other(shape='["M"]', name="a"), _other(shape='["N"]', name="b"), _node("NEG"), rest=', "dims":{"M":2}'),
    ),
    _code(
        "NeutralInvalid",
        "The value of a PAD, the fill of a VIEW or the init of a REDUCE is outside the range of the dtype.",
        _graph(_node("REDUCE", '"op":"MAX", "axes":[0], "dtype":"i32", "init":"-inf"')),
        _graph(_node("REDUCE", '"op":"MAX", "axes":[0], "dtype":"fp32", "init":"-inf"')),
    ),
    _code(
        "AxisOutOfRange",
        "The source has no axis of this number. Negative numbers count from the end.",
        _graph(_node("FLIP", '"axes":[2]')),
        _graph(_node("FLIP", '"axes":[-1]')),
    ),
    _code(
        "UnknownAxis",
        "An axis is given by a symbol that is not an extent of the source.",
        _graph(_SQUARE, _node("REDUCE", '"op":"SUM", "axes":["N"], "dtype":"fp32"', '"q"')),
        _graph(_SQUARE, _node("REDUCE", '"op":"SUM", "axes":[1], "dtype":"fp32"', '"q"')),
    ),
    _code(
        "AmbiguousAxis",
        "An axis is given by a symbol that is the extent of several axes of the source.",
        _graph(_SQUARE, _node("REDUCE", '"op":"SUM", "axes":["M"], "dtype":"fp32"', '"q"')),
        _graph(_SQUARE, _node("REDUCE", '"op":"SUM", "axes":[1], "dtype":"fp32"', '"q"')),
    ),
    _code(
        "NonAffineIndexMap",
        "An entry of a VIEW's map multiplies two axes, or divides by an axis or by a number below 1.",
        _graph(_node("VIEW", '"result_shape":[2, 2], "index_map":{"map":["i0*i1", "i1"]}')),
        _graph(_node("VIEW", '"result_shape":[2, 2], "index_map":{"map":["2*i0", "i1"]}')),
    ),
    _code(
        "UnguardedAccess",
        "A VIEW reads outside its source at a point that no guard excludes.",
        _graph(_node("VIEW", '"result_shape":[3, 4], "index_map":{"map":["i0", "i1-1"]}')),
        _graph(_node("VIEW", '"result_shape":[3, 4], "index_map":{"map":["i0", "i1-1"], "guard":["i1>=1"]}')),
    ),
    _code(
        "UnboundSymbol",
        "Running, planning and some translations need a number for every symbol. It comes from --bind, dims, the shapes of "
        "the inputs, RESHAPE or EXPAND.\n\nThe examples are for `ptir run --random 0`.",
        _graph(_node("PAD", '"pad":[["p", 0], [0, 0]]')),
        _graph(_node("PAD", '"pad":[["p", 0], [0, 0]]'), rest=', "dims":{"p":1}'),
    ),
)

NOTES = (
    _code(
        "UnknownKey",
        "Warning: a key of the graph other than uops, outputs and dims has no effect and is dropped.",
        _graph(_node("NEG"), rest=', "output":["y"]'),
        _graph(_node("NEG"), rest=', "outputs":["y"]'),
    ),
    _code(
        "JsonComment",
        "Note: JSON has no comments. They are accepted, and only fmt keeps them.",
        "// the opposite\n" + _graph(_node("NEG")),
        _graph(_node("NEG")),
    ),
    _code(
        "PoolMacro",
        "Note: POOL is not in the vocabulary; it is read as the VIEW with its index map.",
        _graph(_node("POOL", '"kernel":[2]')),
        _graph(_node("VIEW", '"result_shape":[3, 3, 2], "index_map":{"map":["i0", "i1+i2"]}')),
    ),
    _code(
        "ImplicitCast",
        "Note: an fp16 or bf16 operand next to an fp32 one is cast to fp32.",
        _graph(_other("fp16"), _PAIR),
        _graph(_other("fp16"), _node("CAST", '"to":"fp32"', '"w"', "c"), _node("ADD", src='"x", "c"')),
    ),
    _code(
        "ImplicitExpand",
        "Note: an operand is expanded to the shape of the other, aligned from the right.",
        _graph(_other(shape="[1, 4]"), _PAIR),
        _GOOD,
    ),
    _code(
        "ReducedAxisAlignment",
        "Note: the axes that a REDUCE removed are added to its result again, with extent 1.",
        _graph(_ROW_MAX, _node("SUB", src='"x", "s"')),
        _graph(_ROW_MAX, _node("RESHAPE", '"result_shape":[3, 1]', '"s"', "c"), _expanded("c"), _node("SUB", src='"x", "e"')),
    ),
    _code(
        "SuspiciousReshape",
        "Note: a RESHAPE to the same symbols in another order does not move elements along their axes. PERMUTE exchanges axes.",
        _graph(_other(shape='["M", "N"]'), _node("RESHAPE", '"result_shape":["N", "M"]', '"w"')),
        _graph(_other(shape='["M", "N"]'), _node("PERMUTE", '"perm":[1, 0]', '"w"')),
    ),
    _code(
        "InferredSymbol",
        "Note: a symbol's value follows from a RESHAPE or an EXPAND.",
        _graph(_node("RESHAPE", '"result_shape":[2, "N"]')),
        _graph(_node("RESHAPE", '"result_shape":[2, 6]')),
    ),
)

EXPLAIN = (*ERRORS, *NOTES)
