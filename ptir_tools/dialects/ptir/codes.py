"""The codes of PTIR for `ptir explain`: the meaning of each, with a wrong and a right program."""

from __future__ import annotations

from ptir_tools.core.dialect import Code


def _main(params: str, body: str, result: str, after: str = "") -> str:
    """A program of one function that returns %y; `after` holds regions, and makes it a program in braces."""
    lines = "".join(f"    {line.strip()}\n" for line in body.strip().splitlines())
    function = f"func @main({params}) -> {result} {{\n{lines}    return %y\n  }}\n"
    if not after:
        return function.replace("\n    ", "\n  ").replace("\n  }", "\n}")
    regions = "".join(f"  {line}\n" for line in after.strip("\n").splitlines())
    return f"program @main (spec_version = ptir.v0.4) {{\n  {function}{regions}}}\n"


def _op(code: str, meaning: str, params: str, wrong: tuple[str, str], right: tuple[str, str], after: str = "") -> Code:
    """`wrong` and `right` are (the statement of %y without its type, its type)."""
    bad, good = (_main(params, f"%y = {op} -> {t}", t, after) for op, t in (wrong, right))
    return Code(code, meaning, bad, good, "ptir")


_PX = "%p: tensor<i1>, %x: tensor<f32, 4>"
_F4, _F23, _I4 = "tensor<f32, 4>", "tensor<f32, 2x3>", "tensor<si32, 4>"
_NEG = """
region ^r0(%a: tensor<f32, 4>) -> tensor<f32, 4> {
  %n = neg(%a) -> tensor<f32, 4>
  return %n
}
region ^r1(%a: tensor<f32, 2>) -> tensor<f32, 2> {
  return %a
}"""
_SELF = """
region ^r0(%p: tensor<i1>, %a: tensor<f32, 4>) -> tensor<f32, 4> {
  %n = cond(%p, %p, %a) true_region[^r0] false_region[^r1] -> tensor<f32, 4>
  return %n
}
region ^r1(%p: tensor<i1>, %a: tensor<f32, 4>) -> tensor<f32, 4> {
  return %a
}"""
_HINTED = """func @main(%x: tensor<f32, 4>) -> tensor<f32, 4> {{
  %a = neg(%x) -> tensor<f32, 4>
  %y = exp(%a) -> tensor<f32, 4>
  return %y
  hint 0 ElementwiseDag Preferred inputs[%x] exports[%y]
    attrs[{{fusion_kind = "elementwise_dag_v1", ops_kind = [0, 0], ops_code = [0, {code}], lhs = [0, 1], rhs = [-1, -1]}}] {{
    %a = neg(%x) -> tensor<f32, 4>
    %y = exp(%a) -> tensor<f32, 4>
  }}
}}
"""

CONTRACT = (
    _op("NegativeDimension", "An extent is negative. Extents are non-negative integers or symbols.",
        "%x: tensor<f32>", ("broadcast_to(%x) result_shape[-4]", _F4), ("broadcast_to(%x) result_shape[4]", _F4)),
    _op("DynamicDimensionMismatch", "Two extents must be equal and at least one is a symbol. Equal symbols are equal, a symbol "
        "against a number or another symbol is not, until --bind or the inputs make it a number.",
        "%x: tensor<f32, ?N>, %z: tensor<f32, ?M>", ("add(%x, %z)", "tensor<f32, ?N>"), ("add(%x, %x)", "tensor<f32, ?N>")),
    _op("DTypeNotSupported", "The op does not take this dtype, or cannot give it: the table in docs/ptir.md lists what each "
        "takes. A cast from complex to real is refused, as it would drop the imaginary part.",
        "%x: tensor<i1, 4>", ("neg(%x)", "tensor<i1, 4>"), ("cast(%x)", _F4)),
    _op("InvalidAttributeValue", "An attribute has a value that its rule excludes. Examples are an axis out of range, a "
        "window outside its operand, a list of the wrong length, and a malformed custom call.",
        f"%x: {_F23}", ("transpose(%x) perm[0, 0]", _F23), ("transpose(%x) perm[1, 0]", "tensor<f32, 3x2>")),
    _op("InvalidAccumDTypeOverride", "The accumulator cannot hold every operand: it is of another kind, or narrower.",
        f"%x: {_F23}", ("reduce_sum(%x) axes[1] accum_dtype[f16]", "tensor<f32, 2>"),
        ("reduce_sum(%x) axes[1] accum_dtype[f64]", "tensor<f32, 2>")),
    _op("IntegerPromotionExceedsSi64", "An extent is more than si64 can count.",
        "%x: tensor<f32, 4>", ("tile(%x) repeats[4611686018427387904]", "tensor<f32, 18446744073709551616>"),
        ("tile(%x) repeats[2]", "tensor<f32, 8>")),
    _op("IntegerDivideByZero", "An integer is divided by zero: found before the run when the divisor is a constant.",
        f"%x: {_I4}", ("div(%x, dense<0> : tensor<si32, 4>)", _I4), ("div(%x, dense<2> : tensor<si32, 4>)", _I4)),
    _op("CompareOperandsMustMatchShape", "A comparison's operands have one shape; broadcast_to makes it so.",
        f"%x: {_F4}, %z: tensor<f32, 2>", ("compare_lt(%x, %z)", "tensor<i1, 4>"), ("compare_lt(%x, %x)", "tensor<i1, 4>")),
    _op("CompareDTypePromotionInvalid", "A comparison's operands have one dtype: nothing is promoted.",
        f"%x: {_F4}, %z: {_I4}", ("compare_lt(%x, %z)", "tensor<i1, 4>"), ("compare_lt(%x, %x)", "tensor<i1, 4>")),
    _op("BroadcastRankMismatch", "A broadcast's result has at least as many axes as its operand.",
        f"%x: {_F23}", ("broadcast_to(%x) result_shape[3]", "tensor<f32, 3>"),
        ("broadcast_to(%x) result_shape[4, 2, 3]", "tensor<f32, 4x2x3>")),
    _op("BroadcastDimsInvalid", "Aligned at the right, each extent of a broadcast's operand is 1 or that of the result.",
        f"%x: {_F4}", ("broadcast_to(%x) result_shape[4, 5]", "tensor<f32, 4x5>"),
        ("broadcast_to(%x) result_shape[5, 4]", "tensor<f32, 5x4>")),
    _op("ScatterIndexOutOfBounds", "A scatter or segment index is outside its axis: found before the run when it is constant.",
        "%x: tensor<f32, 3>, %u: tensor<f32, 1>",
        ("scatter_reduce(%x, dense<[3]> : tensor<si32, 1>, %u) axis[0]", "tensor<f32, 3>"),
        ("scatter_reduce(%x, dense<[2]> : tensor<si32, 1>, %u) axis[0]", "tensor<f32, 3>")),
    _op("GatherIndexOutOfBounds", "An index of take or gather is outside its axis: found before the run when it is constant.",
        "%x: tensor<f32, 3>", ("take(%x, dense<[3]> : tensor<si32, 1>)", "tensor<f32, 1>"),
        ("take(%x, dense<[2]> : tensor<si32, 1>)", "tensor<f32, 1>")),
    _op("RegionSignatureMismatch", "A region's parameters or results are not of the types that the op that runs it wants.",
        _PX, ("cond(%p, %x) true_region[^r0] false_region[^r1]", _F4),
        ("cond(%p, %x) true_region[^r0] false_region[^r0]", _F4), _NEG),
)  # fmt: skip

FURTHER = (
    _op("OperandShapeMismatch", "Operands that must agree in shape do not; only broadcast_to changes a shape by broadcasting.",
        f"%x: {_F4}, %z: tensor<f32, 2>", ("add(%x, %z)", _F4), ("add(%x, %x)", _F4)),
    _op("OperandDTypeMismatch", "Operands that must have one dtype do not. PTIR promotes nothing: write the cast.",
        f"%x: {_F4}, %z: tensor<f16, 4>", ("add(%x, %z)", _F4), ("add(%x, %x)", _F4)),
    _op("OperandRankMismatch", "An operand has more or fewer axes than the op takes.",
        "%x: tensor<f32>, %i: tensor<si32, 4>", ("take(%x, %i)", _F4), ("broadcast_to(%x) result_shape[4]", _F4)),
    _op("OperandTypeMismatch", "An operand is a tuple where a tensor is wanted: name an element, %t[0].",
        f"%t: ({_F4}, {_F4})", ("neg(%t)", _F4), ("neg(%t[0])", _F4)),
    _op("OperandCountMismatch", "The op takes another number of operands.", f"%x: {_F4}", ("add(%x)", _F4), ("add(%x, %x)", _F4)),
    Code("ResultTypeMismatch", "The declared type is not the one that the op gives, or a function returns another.",
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F23}", _F23), _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4), "ptir"),
    _op("UnknownOp", "There is no such operation.", f"%x: {_F4}", ("negate(%x)", _F4), ("neg(%x)", _F4)),
    _op("UnknownAttribute", "The operation has no such attribute.", f"%x: {_F23}",
        ("reduce_sum(%x) axes[1] keepdim[true]", "tensor<f32, 2x1>"),
        ("reduce_sum(%x) axes[1] keepdims[true]", "tensor<f32, 2x1>")),
    _op("MissingAttribute", "An attribute that has no default is not given.", f"%x: {_F23}",
        ("reduce_sum(%x)", "tensor<f32, 2>"), ("reduce_sum(%x) axes[1]", "tensor<f32, 2>")),
    _op("DuplicateAttribute", "An attribute is given twice.", f"%x: {_F23}",
        ("reduce_sum(%x) axes[1] axes[1]", "tensor<f32, 2>"), ("reduce_sum(%x) axes[1]", "tensor<f32, 2>")),
    _op("UndefinedValue", "A value is used that no statement before defines.", f"%x: {_F4}", ("neg(%z)", _F4), ("neg(%x)", _F4)),
    Code("RedefinedValue", "A name is defined twice in a function or region.",
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}\n%y = exp(%y) -> {_F4}", _F4),
         _main(f"%x: {_F4}", f"%z = neg(%x) -> {_F4}\n%y = exp(%z) -> {_F4}", _F4), "ptir"),
    Code("SyntaxError", "The text is not PTIR at this place.",
         _main(f"%x: {_F4}", "%y = neg(%x ->", _F4), _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4), "ptir"),
    _op("TupleIndexOutOfRange", "An element of a tuple that is not there, or of a value that is not a tuple.",
        f"%t: ({_F4}, {_F4})", ("neg(%t[2])", _F4), ("neg(%t[1])", _F4)),
    _op("LiteralSizeMismatch", "A literal's payload has not the bytes that its type wants.",
        "", ('constant() value[dense<"0x0000803f00000040">]', "tensor<f32, 3>"),
        ('constant() value[dense<"0x0000803f00000040">]', "tensor<f32, 2>")),
    _op("InvalidLiteral", "A literal's element is not one of its dtype, or its lists have not its shape.",
        "", ("constant() value[dense<[1, 300]>]", "tensor<si8, 2>"), ("constant() value[dense<[1, 30]>]", "tensor<si8, 2>")),
    Code("UnknownFunction", "The entry of the program is not one of its functions.",
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4, _NEG).replace("program @main", "program @start"),
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4, _NEG), "ptir"),
    _op("UnknownRegion", "An op names a region that the program does not have.", _PX,
        ("cond(%p, %x) true_region[^r0] false_region[^r7]", _F4), ("cond(%p, %x) true_region[^r0] false_region[^r0]", _F4), _NEG),
    Code("CyclicRegion", "A region runs itself, directly or through others; PTIR has no recursion.",
         _main(_PX, f"%y = cond(%p, %p, %x) true_region[^r0] false_region[^r1] -> {_F4}", _F4, _SELF),
         _main(_PX, f"%y = cond(%p, %x) true_region[^r0] false_region[^r0] -> {_F4}", _F4, _NEG), "ptir"),
    Code("HintMismatch", "A fusion hint's body is not a copy of its function's ops, reads what is not an input, or "
         "computes what is used outside and not exported. Or its payload "
         "(ops_code, dimension numbers, operand indices) says something else.",
         _HINTED.format(code=4), _HINTED.format(code=2), "ptir"),
    Code("UnfilledPlaceholder", "A snippet has a placeholder {{name}} for which nothing is given: --set name=value fills it.",
         _main("%x: tensor<{{dtype}}, 4>", f"%y = neg(%x) -> {_F4}", _F4),
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4), "ptir"),
    Code("SpecVersionMismatch", "The program is of another version of the contract than ptir.v0.4.",
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4, _NEG).replace("v0.4", "v0.3"),
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4, _NEG), "ptir"),
)  # fmt: skip

_GUESSED = """program @main (spec_version = ptir.v0.4) {{
  func @main {{
    params:
      %0 : tensor<F32 x {0}>
    body:
      %1 = ElementwiseUnary(Neg)(%0) -> tensor<F32 x {0}>
    results:
      %1 : tensor<F32 x {0}>
  }}
}}
"""
_FORWARDED = """
region ^r0(%a: tensor<f32, 4>) -> tensor<f32, 4> {{
  {0}
}}"""
_BRANCH = f"%y = cond(%p, %x) true_region[^r0] false_region[^r0] -> {_F4}"

# Notes and warnings of the readers and writers of dump and JSON, which change no exit code.
ADVICE = (
    _op("LossyFloat", "JSON has no NaN and no infinity. Like gpt.rs, the writer gives null for them. The reader takes a "
        "null for the NaN or infinity that it most likely was. The text form keeps them.", f"%x: {_F4}",
        ("pad(%x) low[1] high[0] pad_value[-inf]", "tensor<f32, 5>"),
        ("pad(%x) low[1] high[0] pad_value[-1e+30]", "tensor<f32, 5>")),
    _op("LostStream", "Dump and JSON have no place for the stream of a random op: when read back it is the ordinal of the op "
        "among the random ops of the program.", "", ("rng_uniform() stream[7]", _F4), ("rng_uniform()", _F4)),
    _op("Decomposed", "gpt.rs has no layer_norm and no clamp: the writers of dump and JSON write them as smaller ops, as the "
        "pass decompose does.", f"%x: {_F4}", ("clamp(%x, %x, %x)", _F4), ("neg(%x)", _F4)),
    Code("ResultForwarded", "Dump and JSON can only return instructions, and regions only their last ones: the writer appends "
         "stop_gradient ops to say the rest.", _main(_PX, _BRANCH, _F4, _FORWARDED.format("return %a")),
         _main(_PX, _BRANCH, _F4, _FORWARDED.format(f"%n = neg(%a) -> {_F4}\n  return %n")), "ptir"),
    Code("AmbiguousSymbol", "A dump does not tell a symbol from the x behind it: `?axx2` may be `?ax` and 2, or the symbol "
         "`axx2`. The last x before a digit or another symbol is taken as the separator.",
         _GUESSED.format("?axx2"), _GUESSED.format("?ax2"), "ptir-dump"),
)  # fmt: skip

# What only a run finds.
AT_RUN_TIME = (
    _op("MissingPayload", "A constant's bytes are not in the file (a dump drops those of inline literals): the program "
        "verifies and plans but does not run.", "", ("constant() value[dense<?>]", _F4), ("constant() value[dense<1.0>]", _F4)),
    _op("Unimplemented", "No kernel for this custom call; there is no silent fallback.", f"%x: {_F4}",
        ('custom_call(%x) target["my.kernel.v1"]', _F4), ("exp(%x)", _F4)),
    _op("UnboundSymbol", "A symbol has no value: give it with --bind NAME=INT.", "%x: tensor<f32>",
        ("broadcast_to(%x) result_shape[?N]", "tensor<f32, ?N>"), ("broadcast_to(%x) result_shape[4]", _F4)),
)  # fmt: skip

EXPLAIN: tuple[Code, ...] = (*CONTRACT, *FURTHER, *ADVICE, *AT_RUN_TIME)
