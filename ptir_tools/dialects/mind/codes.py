"""MIND's error catalogue: what each code means, with a wrong and a right program."""

from ptir_tools.core.dialect import Code

_X = "%0 = Input {name=x} : tensor<f32[2, 3]>\n"
_Y = "%1 = Input {name=y} : tensor<f32[2, 3]>\n"
_N = "%1 = Input {name=n} : tensor<i32[2, 3]>\n"
_IMAGE = "%0 = Input {name=x} : tensor<f32[1, 4, 4, 2]>\n%1 = Input {name=f} : tensor<f32[3, 3, 2, 1]>\n"


def _code(code: str, meaning: str, wrong: str, right: str) -> Code:
    return Code(code, meaning, wrong, right, "mind")


def _of_x(code: str, meaning: str, wrong: str, right: str) -> Code:
    """An entry with programs of one instruction on `x`."""
    return _code(code, meaning, f"{_X}%1 = {wrong}\noutputs: %1\n", f"{_X}%1 = {right}\noutputs: %1\n")


def _of_two(code: str, meaning: str, wrong: tuple[str, str], right: tuple[str, str]) -> Code:
    """An entry with programs of one instruction on `x` and a second input."""
    return _code(code, meaning, *(f"{_X}%1 = Input {{name=y}} : {t}\n%2 = {op}\noutputs: %2\n" for t, op in (wrong, right)))


def _conv(code: str, meaning: str, wrong: str, right: str) -> Code:
    """An entry with programs of one Conv2d with these attributes."""
    return _code(code, meaning, *(f"{_IMAGE}%2 = Conv2d (%0, %1) {{{a}}}\noutputs: %2\n" for a in (wrong, right)))


_TEXT = (
    Code("E1001", "The file is not UTF-8. The position is that of the first byte that cannot be read."),
    _of_x("E1002", "No token begins with this character.", "Neg $0", "Neg (%0)"),
    _code("E1003", "A string is not closed on its line.", _X.replace("x}", '"x}') + "outputs: %0\n", _X + "outputs: %0\n"),
    _code(
        "E1004",
        'An escape sequence is not \\n, \\r, \\t, \\\\ or \\".',
        _X.replace("=x", '="a\\q"') + "outputs: %0\n",
        _X.replace("=x", '="a\\\\q"') + "outputs: %0\n",
    ),
    _of_x("E1005", "A token begins like a number and is not one.", "ConstF32 {value=1.2.3}", "ConstF32 {value=1.2}"),
    _of_x("E1007", "A line is not a statement, or follows the outputs.", "Neg (%0", "Neg (%0)"),
)

_TYPES = (
    _of_x(
        "E2001",
        "An instruction gives another type than its result declares.",
        "Neg (%0) : tensor<f32[3, 2]>",
        "Neg (%0) : tensor<f32[2, 3]>",
    ),
    _of_two(
        "E2004",
        "The operands have different dtypes. MIND has no implicit casts.",
        ("tensor<i32[2, 3]>", "Add (%0, %1)"),
        ("tensor<f32[2, 3]>", "Add (%0, %1)"),
    ),
    _code(
        "E2005",
        "The instruction does not take this dtype, or MIND does not have it.",
        f"{_X}{_N}%2 = Relu (%1)\noutputs: %2\n",
        f"{_X}{_N}%2 = Relu (%0)\noutputs: %2\n",
    ),
    _of_x("E2007", "The number of operands is wrong, or one is not a value.", "Neg (%0, %0)", "Neg (%0)"),
)

_SHAPES = (
    _of_two(
        "E3001",
        "The shapes do not broadcast. They are aligned on the right; two extents must be equal, or one of them 1.",
        ("tensor<f32[2, 4]>", "Add (%0, %1)"),
        ("tensor<f32[2, 1]>", "Add (%0, %1)"),
    ),
    _of_two(
        "E3002",
        "The instruction does not take an operand of this rank.",
        ("tensor<f32[3]>", "MatMul (%0, %1)"),
        ("tensor<f32[3]>", "Dot (%0, %1)"),
    ),
    _of_two(
        "E3003",
        "The contracted extents of a product differ.",
        ("tensor<f32[4, 5]>", "MatMul (%0, %1)"),
        ("tensor<f32[3, 5]>", "MatMul (%0, %1)"),
    ),
    _of_x("E3004", "An axis is out of range.", "Sum (%0) {axes=[2], keepdims=false}", "Sum (%0) {axes=[1], keepdims=false}"),
    _of_x(
        "E3005", "An axis is given twice.", "Sum (%0) {axes=[1, -1], keepdims=false}", "Sum (%0) {axes=[0, 1], keepdims=false}"
    ),
    _of_x("E3006", "An extent is not positive.", "Reshape (%0) {new_shape=[-1, -1]}", "Reshape (%0) {new_shape=[3, -1]}"),
    _of_x(
        "E3007", "A Reshape changes the number of elements.", "Reshape (%0) {new_shape=[4, 2]}", "Reshape (%0) {new_shape=[3, 2]}"
    ),
    _of_x(
        "E3008",
        "The list is not a permutation of the axes.",
        "Transpose (%0) {permutation=[1, 1]}",
        "Transpose (%0) {permutation=[1, 0]}",
    ),
    _code(
        "E3009",
        "A Squeeze removes an axis whose extent is not 1.",
        "%0 = Input {name=x} : tensor<f32[1, 3]>\n%1 = Squeeze (%0) {axes=[1]}\noutputs: %1\n",
        "%0 = Input {name=x} : tensor<f32[1, 3]>\n%1 = Squeeze (%0) {axes=[0]}\noutputs: %1\n",
    ),
)

_MODULE = (
    _of_x("E4001", "A value is used before its definition, or is never defined.", "Add (%0, %2)", "Add (%0, %0)"),
    _code("E4002", "A value is defined twice.", _X + _Y.replace("%1", "%0") + "outputs: %0\n", _X + _Y + "outputs: %0\n"),
    _code("E4003", "An output is not defined, or the module has no outputs.", _X + "outputs: %42\n", _X + "outputs: %0\n"),
    _code(
        "E4004",
        "An Input has no name or no type, the name of another Input, an unknown dtype, or a symbolic extent.",
        "%0 = Input : tensor<f32[2]>\noutputs: %0\n",
        "%0 = Input {name=x} : tensor<f32[2]>\noutputs: %0\n",
    ),
    _code(
        "E4005",
        "The elements of a constant do not fit its dtype or its shape.",
        "%0 = ConstTensor {dtype=f32, shape=(2, 2), value=[1.0, 2.0, 3.0]}\noutputs: %0\n",
        "%0 = ConstTensor {dtype=f32, shape=(2, 2), value=[1.0, 2.0, 3.0, 4.0]}\noutputs: %0\n",
    ),
    _of_x("E4006", "An Index does not have one index per axis.", "Index (%0) {indices=[1]}", "Index (%0) {indices=[1, 2]}"),
    _of_x(
        "E4007",
        "A Slice does not have one start, end and step per axis.",
        "Slice (%0) {ends=[2, 3], starts=[0], steps=[1, 1]}",
        "Slice (%0) {ends=[2, 3], starts=[0, 0], steps=[1, 1]}",
    ),
    _of_x(
        "E4008",
        "A step of a Slice is not positive.",
        "Slice (%0) {ends=[2, 3], starts=[0, 0], steps=[1, -1]}",
        "Slice (%0) {ends=[2, 3], starts=[0, 0], steps=[1, 2]}",
    ),
    _code(
        "E4009",
        "The channels of a Conv2d's input and filter differ.",
        f"{_IMAGE}%2 = Conv2d (%0, %0) {{padding=Valid, strides=[1, 1]}}\noutputs: %2\n",
        f"{_IMAGE}%2 = Conv2d (%0, %1) {{padding=Valid, strides=[1, 1]}}\noutputs: %2\n",
    ),
    _conv(
        "E4010",
        "The strides of a Conv2d are not two positive integers.",
        "padding=Valid, strides=[1, 0]",
        "padding=Valid, strides=[1, 2]",
    ),
    _of_two(
        "E4011",
        "The indices of a Gather are not integers.",
        ("tensor<f32[2]>", "Gather (%0, %1)"),
        ("tensor<i64[2]>", "Gather (%0, %1)"),
    ),
    _conv(
        "E4012",
        "The padding is not Valid, Same, or Custom with two pairs of non-negative integers.",
        "padding=Custom([[1, 1]]), strides=[1, 1]",
        "padding=Custom([[1, 1], [0, 2]]), strides=[1, 1]",
    ),
    _of_x(
        "E4013",
        "An attribute is missing, given twice or of the wrong kind.",
        "Sum (%0) {axes=[1]}",
        "Sum (%0) {axes=[1], keepdims=true}",
    ),
)

_RUN_TIME = (
    _of_x("E6001", "At run time: an index is out of bounds.", "Index (%0) {indices=[0, 3]}", "Index (%0) {indices=[0, 2]}"),
    _of_x("E6003", "Core v1 does not have this opcode; it has no Div.", "BinOp(Div, %0, %0)", "BinOp(Mul, %0, %0)"),
    _code(
        "E6006",
        "At run time: a Mean of integers has no elements.",
        f"{_X}{_N}%2 = Slice(%1, [1:1, 0:3])\n%3 = Mean(%2, [], false)\noutputs: %3\n",
        f"{_X}{_N}%2 = Slice(%1, [1:2, 0:3])\n%3 = Mean(%2, [], false)\noutputs: %3\n",
    ),
)

_SCALAR = "# ptir opt -p autodiff\n%0 = Input {name=x} : tensor<f32[]>\n"
_AUTODIFF = (
    _code(
        "E5001",
        "In the pass `autodiff`: an instruction of a plug-in has no gradient. All of Core v1 have one.",
        "",
        f"{_SCALAR}%1 = Exp (%0)\noutputs: %1\n",
    ),
    _code(
        "E5004",
        "In the pass `autodiff`: the output is not a float scalar.",
        f"{_SCALAR}%1 = ExpandDims (%0) {{axes=[0]}}\noutputs: %1\n",
        f"{_SCALAR}%1 = Neg (%0)\noutputs: %1\n",
    ),
    _code(
        "E5005",
        "In the pass `autodiff`: an input has integers, or no input has floats.",
        "# ptir opt -p autodiff\n%0 = Input {name=n} : tensor<i32[]>\n%1 = ConstF32 {value=1.0}\noutputs: %1\n",
        f"{_SCALAR}%1 = Neg (%0)\noutputs: %1\n",
    ),
)

_REMARKS = (
    _of_x(
        "UnknownAttribute",
        "The instruction does not have this attribute. It is kept and printed, and has no effect.",
        "Neg (%0) {speed=fast}",
        "Neg (%0)",
    ),
    _code(
        "ValueIdOrder",
        "A value id is lower than an earlier one. Canonical ids are dense and ascend.",
        f"{_X}%5 = Neg (%0)\n%4 = Neg (%5)\noutputs: %4\n",
        f"{_X}%1 = Neg (%0)\n%2 = Neg (%1)\noutputs: %2\n",
    ),
    _code(
        "InputOrder",
        "An Input follows another instruction. Canonical modules begin with their inputs.",
        f"{_X}%1 = Neg (%0)\n%2 = Input {{name=y}} : tensor<f32[]>\noutputs: %1, %2\n",
        f"{_X}%1 = Input {{name=y}} : tensor<f32[]>\n%2 = Neg (%0)\noutputs: %2, %1\n",
    ),
    Code(
        "ValuesRenumbered",
        "`mind-json` has integer value ids. When a module with named values is written, they are numbered from 0.\n\n"
        "The examples are for `ptir translate --to mind-json -v`.",
        "%a = Input {name=x} : tensor<f32[2]>\noutputs: %a\n",
        "%0 = Input {name=x} : tensor<f32[2]>\noutputs: %0\n",
        "mind",
    ),
)

# Codes of the catalogue that Core IR cannot raise, or that another code precedes.
RESERVED = {
    "E1006": "a block comment is not closed. Core IR has none.",
    "E2002": "a variable is not declared, in the surface language.",
    "E2003": "a type cannot be inferred, in the surface language.",
    "E2006": "a type lacks a trait, in the surface language.",
    "E2101": "extents do not broadcast, in the surface language. In Core IR it is E3001.",
    "E2102": "a rank or a reduction does not fit, in the surface language.",
    "E2103": "the inner extents of a matrix product differ, in the surface language.",
    "E3010": "the shape of a literal is not the declared one. It is reported as E4005.",
    "E5002": "a gradient module is not valid. `autodiff` verifies what it makes.",
    "E5003": "a reduction has an invalid axis when it is differentiated. The module is verified before: E3004.",
    "E6002": "a backend is not available.",
    "E6004": "memory for a tensor is not available.",
    "E6005": "an integer or a float overflows. Here integers wrap and floats become infinite.",
    "E6007": "an operation takes too long.",
    "E6008": "a device reports an error.",
}
_UNUSED = tuple(_code(code, f"Reserved: {meaning}", "", "") for code, meaning in RESERVED.items())

EXPLAIN: tuple[Code, ...] = (*_TEXT, *_TYPES, *_SHAPES, *_MODULE, *_AUTODIFF, *_RUN_TIME, *_UNUSED, *_REMARKS)
