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
    _op("DynamicDimensionMismatch", "Two extents must be equal, and are not known to be. A symbol equals only itself, until "
        "--bind or the inputs give it a number.",
        "%x: tensor<f32, ?N>, %z: tensor<f32, ?M>", ("add(%x, %z)", "tensor<f32, ?N>"), ("add(%x, %x)", "tensor<f32, ?N>")),
    _op("DTypeNotSupported", "The op does not take this dtype, or cannot give it. docs/ptir.md has a table of the dtypes of "
        "each op. A cast from complex to real is refused, as it would drop the imaginary part.",
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
    _op("IntegerDivideByZero", "An integer is divided by zero. If the divisor is a constant, this is reported before the run.",
        f"%x: {_I4}", ("div(%x, dense<0> : tensor<si32, 4>)", _I4), ("div(%x, dense<2> : tensor<si32, 4>)", _I4)),
    _op("CompareOperandsMustMatchShape", "The operands of a comparison have different shapes. Write a broadcast_to.",
        f"%x: {_F4}, %z: tensor<f32, 2>", ("compare_lt(%x, %z)", "tensor<i1, 4>"), ("compare_lt(%x, %x)", "tensor<i1, 4>")),
    _op("CompareDTypePromotionInvalid", "The operands of a comparison have different dtypes. Nothing is promoted: write a cast.",
        f"%x: {_F4}, %z: {_I4}", ("compare_lt(%x, %z)", "tensor<i1, 4>"), ("compare_lt(%x, %x)", "tensor<i1, 4>")),
    _op("BroadcastRankMismatch", "The result of a broadcast has fewer axes than its operand.",
        f"%x: {_F23}", ("broadcast_to(%x) result_shape[3]", "tensor<f32, 3>"),
        ("broadcast_to(%x) result_shape[4, 2, 3]", "tensor<f32, 4x2x3>")),
    _op("BroadcastDimsInvalid", "The shapes do not broadcast. Aligned at the right, each extent of the operand must be 1 or "
        "that of the result.",
        f"%x: {_F4}", ("broadcast_to(%x) result_shape[4, 5]", "tensor<f32, 4x5>"),
        ("broadcast_to(%x) result_shape[5, 4]", "tensor<f32, 5x4>")),
    _op("ScatterIndexOutOfBounds", "An index of a scatter or segment op is out of bounds. Constants are checked before the run.",
        "%x: tensor<f32, 3>, %u: tensor<f32, 1>",
        ("scatter_reduce(%x, dense<[3]> : tensor<si32, 1>, %u) axis[0]", "tensor<f32, 3>"),
        ("scatter_reduce(%x, dense<[2]> : tensor<si32, 1>, %u) axis[0]", "tensor<f32, 3>")),
    _op("GatherIndexOutOfBounds", "An index of take or gather is out of bounds. Constants are checked before the run.",
        "%x: tensor<f32, 3>", ("take(%x, dense<[3]> : tensor<si32, 1>)", "tensor<f32, 1>"),
        ("take(%x, dense<[2]> : tensor<si32, 1>)", "tensor<f32, 1>")),
    _op("RegionSignatureMismatch", "The parameters or results of a region do not have the types that its op requires.",
        _PX, ("cond(%p, %x) true_region[^r0] false_region[^r1]", _F4),
        ("cond(%p, %x) true_region[^r0] false_region[^r0]", _F4), _NEG),
)  # fmt: skip

FURTHER = (
    _op("OperandShapeMismatch", "The operands must have the same shape. Only broadcast_to broadcasts.",
        f"%x: {_F4}, %z: tensor<f32, 2>", ("add(%x, %z)", _F4), ("add(%x, %x)", _F4)),
    _op("OperandDTypeMismatch", "The operands must have the same dtype. Nothing is promoted: write a cast.",
        f"%x: {_F4}, %z: tensor<f16, 4>", ("add(%x, %z)", _F4), ("add(%x, %x)", _F4)),
    _op("OperandRankMismatch", "An operand has more or fewer axes than the op takes.",
        "%x: tensor<f32>, %i: tensor<si32, 4>", ("take(%x, %i)", _F4), ("broadcast_to(%x) result_shape[4]", _F4)),
    _op("OperandTypeMismatch", "An operand is a tuple, and the op takes a tensor: write an element, %t[0].",
        f"%t: ({_F4}, {_F4})", ("neg(%t)", _F4), ("neg(%t[0])", _F4)),
    _op("OperandCountMismatch", "The op takes another number of operands.", f"%x: {_F4}", ("add(%x)", _F4), ("add(%x, %x)", _F4)),
    Code("ResultTypeMismatch", "An op or a function gives another type than it declares.",
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F23}", _F23), _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4), "ptir"),
    _op("UnknownOp", "PTIR has no such op.", f"%x: {_F4}", ("negate(%x)", _F4), ("neg(%x)", _F4)),
    _op("UnknownAttribute", "The op has no such attribute.", f"%x: {_F23}",
        ("reduce_sum(%x) axes[1] keepdim[true]", "tensor<f32, 2x1>"),
        ("reduce_sum(%x) axes[1] keepdims[true]", "tensor<f32, 2x1>")),
    _op("MissingAttribute", "An attribute is missing, and has no default.", f"%x: {_F23}",
        ("reduce_sum(%x)", "tensor<f32, 2>"), ("reduce_sum(%x) axes[1]", "tensor<f32, 2>")),
    _op("DuplicateAttribute", "An attribute is given twice.", f"%x: {_F23}",
        ("reduce_sum(%x) axes[1] axes[1]", "tensor<f32, 2>"), ("reduce_sum(%x) axes[1]", "tensor<f32, 2>")),
    _op("UndefinedValue", "A value is used that no earlier statement defines.", f"%x: {_F4}", ("neg(%z)", _F4), ("neg(%x)", _F4)),
    Code("RedefinedValue", "A name is defined twice in a function or region.",
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}\n%y = exp(%y) -> {_F4}", _F4),
         _main(f"%x: {_F4}", f"%z = neg(%x) -> {_F4}\n%y = exp(%z) -> {_F4}", _F4), "ptir"),
    Code("SyntaxError", "The text is not PTIR at this place.",
         _main(f"%x: {_F4}", "%y = neg(%x ->", _F4), _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4), "ptir"),
    _op("TupleIndexOutOfRange", "The tuple has no such element, or the value is not a tuple.",
        f"%t: ({_F4}, {_F4})", ("neg(%t[2])", _F4), ("neg(%t[1])", _F4)),
    _op("LiteralSizeMismatch", "The payload of a literal does not have the bytes of its type.",
        "", ('constant() value[dense<"0x0000803f00000040">]', "tensor<f32, 3>"),
        ('constant() value[dense<"0x0000803f00000040">]', "tensor<f32, 2>")),
    _op("InvalidLiteral", "An element of a literal does not fit its dtype, or its lists do not have its shape.",
        "", ("constant() value[dense<[1, 300]>]", "tensor<si8, 2>"), ("constant() value[dense<[1, 30]>]", "tensor<si8, 2>")),
    Code("UnknownFunction", "The entry of the program is not one of its functions.",
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4, _NEG).replace("program @main", "program @start"),
         _main(f"%x: {_F4}", f"%y = neg(%x) -> {_F4}", _F4, _NEG), "ptir"),
    _op("UnknownRegion", "An op names a region that the program does not have.", _PX,
        ("cond(%p, %x) true_region[^r0] false_region[^r7]", _F4), ("cond(%p, %x) true_region[^r0] false_region[^r0]", _F4), _NEG),
    Code("CyclicRegion", "A region runs itself, directly or through others. PTIR has no recursion.",
         _main(_PX, f"%y = cond(%p, %p, %x) true_region[^r0] false_region[^r1] -> {_F4}", _F4, _SELF),
         _main(_PX, f"%y = cond(%p, %x) true_region[^r0] false_region[^r0] -> {_F4}", _F4, _NEG), "ptir"),
    Code("HintMismatch", "The body of a fusion hint is not a copy of ops of its function, reads more than its inputs, or does "
         "not export a value that is used outside. Or it does not agree with its payload (ops_code, dimension numbers, "
         "operand indices).",
         _HINTED.format(code=4), _HINTED.format(code=2), "ptir"),
    Code("UnfilledPlaceholder", "A placeholder {{name}} of a snippet has no value: --set name=value gives one.",
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
    _op("LossyFloat", "JSON has no NaN and no infinity. Like gpt.rs, the writer writes null for them. The reader guesses which "
        "of them a null was. The text form keeps them.", f"%x: {_F4}",
        ("pad(%x) low[1] high[0] pad_value[-inf]", "tensor<f32, 5>"),
        ("pad(%x) low[1] high[0] pad_value[-1e+30]", "tensor<f32, 5>")),
    _op("LostStream", "Dump and JSON do not keep the stream of a random op. The reader numbers the random ops 0, 1, 2 "
        "in order.", "", ("rng_uniform() stream[7]", _F4), ("rng_uniform()", _F4)),
    _op("Decomposed", "gpt.rs has no layer_norm and no clamp. The writers of dump and JSON write them as smaller ops, as the "
        "pass decompose does.", f"%x: {_F4}", ("clamp(%x, %x, %x)", _F4), ("neg(%x)", _F4)),
    Code("ResultForwarded", "In dump and JSON a function can return only results of ops, and a region only those of its last "
         "ops. For other values the writer appends stop_gradient ops.", _main(_PX, _BRANCH, _F4, _FORWARDED.format("return %a")),
         _main(_PX, _BRANCH, _F4, _FORWARDED.format(f"%n = neg(%a) -> {_F4}\n  return %n")), "ptir"),
    Code("AmbiguousSymbol", "A dump does not separate a symbol from the x that follows it. `?axx2` may be `?ax` and 2, or "
         "the symbol `axx2`. The reader takes the last x before a digit or another symbol as the separator.",
         _GUESSED.format("?axx2"), _GUESSED.format("?ax2"), "ptir-dump"),
)  # fmt: skip

# What only a run finds.
AT_RUN_TIME = (
    _op("MissingPayload", "The file does not have the bytes of a constant (a dump drops those of inline literals). The program "
        "verifies and plans, but does not run.", "", ("constant() value[dense<?>]", _F4), ("constant() value[dense<1.0>]", _F4)),
    _op("Unimplemented", "This custom call has no kernel, and there is no silent fallback.", f"%x: {_F4}",
        ('custom_call(%x) target["my.kernel.v1"]', _F4), ("exp(%x)", _F4)),
    _op("UnboundSymbol", "A symbol has no value: give it with --bind NAME=INT.", "%x: tensor<f32>",
        ("broadcast_to(%x) result_shape[?N]", "tensor<f32, ?N>"), ("broadcast_to(%x) result_shape[4]", _F4)),
)  # fmt: skip

EXPLAIN: tuple[Code, ...] = (*CONTRACT, *FURTHER, *ADVICE, *AT_RUN_TIME)
