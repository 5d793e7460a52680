"""One element in C: its types, literals and operators. Helper functions are written out where they are used.

Floats of 8 and 16 bits are computed as `float` and rounded after each op; memory has their bits. Integers of 4 bits have a byte
each, and wrap after each op.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.bridges.c import complexes
from ptir_tools.core.dtypes import (
    BF16,
    CF32,
    CF64,
    F16,
    F32,
    F64,
    FP8_E4M3,
    FP8_E5M2,
    I1,
    SI4,
    SI8,
    SI16,
    SI32,
    SI64,
    UI4,
    UI8,
    UI16,
    UI32,
    UI64,
    DType,
)
from ptir_tools.core.lazy import np
from ptir_tools.core.violations import Violation

MEMORY = {
    F32: "float", F64: "double", F16: "uint16_t", BF16: "uint16_t", FP8_E4M3: "uint8_t",
    FP8_E5M2: "uint8_t", I1: "uint8_t", SI8: "int8_t", SI16: "int16_t",
    SI32: "int32_t", SI64: "int64_t", UI8: "uint8_t", UI16: "uint16_t", UI32: "uint32_t", UI64: "uint64_t",
    SI4: "int8_t", UI4: "uint8_t", CF32: "ptir_cf32", CF64: "ptir_cf64",
}  # fmt: skip
NIBBLES = (SI4, UI4)
NARROW = (F16, BF16, FP8_E4M3, FP8_E5M2)


def memory(dtype: DType) -> str:
    """The C type of an element in memory. Raises Violation("NotTranslatable")."""
    if dtype not in MEMORY:
        raise Violation("NotTranslatable", f"C has no {dtype}")
    return MEMORY[dtype]


def computed(dtype: DType) -> str:
    """The C type in which an element is computed."""
    return "float" if dtype in NARROW else memory(dtype)


def wrapping(dtype: DType) -> str:
    """The C type of sums: unsigned for integers, because these wrap."""
    return computed(dtype) if not dtype.is_integer else "uint64_t" if dtype.size == 8 else "uint32_t"


def number(value: object, dtype: DType) -> str:
    """A literal of a computed element; `value` is a Python number."""
    if isinstance(value, complex) or dtype.is_complex:
        return f"(({memory(dtype)}){braced(complex(value), dtype)})"  # type: ignore[call-overload]
    if not dtype.is_float:
        n = int(value)  # type: ignore[call-overload]
        if n == -(1 << 63):
            return "INT64_MIN"
        text = f"{n}ULL" if dtype is UI64 else f"{n}LL" if dtype is SI64 else f"{n}U" if dtype is UI32 else str(n)
        return f"({text})" if n < 0 else text
    x = float(value)  # type: ignore[arg-type]
    if x != x:
        return "NAN"
    if abs(x) == float("inf"):
        return "INFINITY" if x > 0 else "(-INFINITY)"
    text = repr(x) if dtype is F64 else f"{np.float32(x)!s}f"
    return f"({text})" if text.startswith("-") else text


def braced(value: complex, dtype: DType) -> str:
    """The parts of a complex number, as they initialize one."""
    part = F64 if dtype is CF64 else F32
    return f"{{{number(value.real, part)}, {number(value.imag, part)}}}"


class Helpers:
    """The helper functions that a file needs, each once, after those that it needs itself."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.checks = 0  # the number of calls so far that may set `bad`

    def use(self, name: str, text: str) -> str:
        """`name`, with its definition in the file."""
        self.texts.setdefault(name, text)
        return name

    def named(self, name: str) -> str:
        """A function of `FUNCTIONS`."""
        needs, text = FUNCTIONS[name]
        for n in needs:
            self.named(n)
        return self.use(f"ptir_{name}", text)

    def inside(self, i: str, extent: str) -> str:
        """Whether an index is in an axis; if not, the run is bad."""
        self.checks += 1
        return f"{self.named('inside')}({i}, {extent}, &bad)"

    def load(self, dtype: DType, x: str) -> str:
        """A computed element from memory."""
        if dtype in NIBBLES:
            return self.store(dtype, x)
        return f"{self.named(f'from_{dtype}')}({x})" if dtype in NARROW else x

    def wrapping(self, dtype: DType, x: str) -> str:
        """A sum of integers of 4 bits, computed with more, as one of them; others as they are."""
        return self.store(dtype, x) if dtype in NIBBLES else x

    def bits(self, dtype: DType, x: str) -> str:
        """The bits of a computed element, as an unsigned integer."""
        if dtype in NARROW:
            return self.store(dtype, x)
        if dtype.is_float:
            return f"{self.named('bits' if dtype is F32 else 'bits64')}({x})"
        return f"({x} & 15)" if dtype in NIBBLES else f"(uint{dtype.bits}_t){x}"

    def of_bits(self, dtype: DType, x: str) -> str:
        """The computed element that has the lowest bits of an unsigned integer."""
        if dtype in (F32, F64):
            return f"{self.named('float_of' if dtype is F32 else 'double_of')}({x})"
        return self.load(dtype, f"({memory(dtype)})({x})")

    def store(self, dtype: DType, x: str) -> str:
        """A computed element for memory."""
        return f"{self.named(f'to_{dtype}')}({x})" if dtype in NARROW + NIBBLES else x

    def rounded(self, dtype: DType, x: str) -> str:
        """A computed element after its op."""
        return self.load(dtype, self.store(dtype, x)) if dtype in NARROW else self.wrapping(dtype, x)

    # Ops

    def wrapped(self, dtype: DType, op: str, x: str, y: str) -> str:
        """`x op y`, wrapping for integers."""
        if dtype.is_complex:
            return complexes.applied(self.use, dtype, {"+": "add", "-": "sub", "*": "mul"}[op], x, y)
        if dtype.is_float:
            return f"({x} {op} {y})"
        t = wrapping(dtype)
        return f"({computed(dtype)})(({t}){x} {op} ({t}){y})"

    def extreme(self, dtype: DType, kind: str, x: str, y: str) -> str:
        """The larger ("max") or the smaller ("min"): NaN wins, and 0.0 is above -0.0."""
        t, sign = computed(dtype), ">" if kind == "max" else "<"
        name = f"ptir_{kind}_{t}"
        if not dtype.is_float:
            return f"{self.use(name, f'static inline {t} {name}({t} a, {t} b) {{ return a {sign} b ? a : b; }}')}({x}, {y})"
        bits, of = ("uint32_t", "bits") if t == "float" else ("uint64_t", "bits64")
        f, g = self.named(of), self.named("float_of" if t == "float" else "double_of")
        both = "&" if kind == "max" else "|"
        text = f"""static inline {t} {name}({t} a, {t} b)
{{
    const {bits} same = {f}(a) {both} {f}(b);
    const {t} other = a == b ? {g}(same) : b;
    return a != a || a {sign} b ? a : other;
}}"""
        return f"{self.use(name, text)}({x}, {y})"

    def divided(self, dtype: DType, x: str, y: str, kind: str = "div") -> str:
        """The quotient, or "rem" and "mod"; of integers toward zero, and a zero divisor is an error."""
        t = computed(dtype)
        if dtype.is_float and kind == "div":
            return f"({x} / {y})"
        name = f"ptir_{kind}_{t}"
        if dtype.is_float:
            f = "f" if t == "float" else ""
            fix = "" if kind == "rem" else "\n    if (r != 0 && (r < 0) != (b < 0))\n        r += b;"
            zero = "" if kind == "rem" else f"\n    if (r == 0)\n        r = copysign{f}(r, b);"
            text = f"static inline {t} {name}({t} a, {t} b)\n{{\n    {t} r = fmod{f}(a, b);{fix}{zero}\n    return r;\n}}"
            return f"{self.use(name, text)}({x}, {y})"
        whole = f"({t})(({wrapping(dtype)})0 - ({wrapping(dtype)})a)" if kind == "div" else "0"
        minus = f"\n    if (b == ({t})-1)\n        return {whole};" if dtype.is_signed else ""
        value = {"div": "a / b", "rem": "a % b", "mod": "a % b"}[kind]
        tail = f"return ({t})({value});"
        if kind == "mod" and dtype.is_signed:
            tail = f"const {t} r = ({t})(a % b);\n    return r != 0 && (r < 0) != (b < 0) ? ({t})(r + b) : r;"
        text = f"""static inline {t} {name}({t} a, {t} b, int *bad)
{{
    if (b == 0) {{
        *bad = 1;
        return 0;
    }}{minus}
    {tail}
}}"""
        self.checks += 1
        return f"{self.use(name, text)}({x}, {y}, &bad)"

    def cast(self, source: DType, target: DType, x: str) -> str:
        """A cast by the contract's table: floats to integers saturate and NaN gives 0; integers saturate."""
        s, t = computed(source), computed(target)
        if target.is_complex:
            real = self.cast(source, F64 if target is CF64 else F32, x) if not source.is_complex else f"{x}.re"
            return x if source is target else complexes.made(self.use, target, real, f"{x}.im" if source.is_complex else "0")
        if source.is_complex:
            return f"(uint8_t)({x}.re != 0 || {x}.im != 0)"
        if target is I1:
            return f"(uint8_t)({x} != 0)"
        if source is I1:
            return f"({t}){x}"
        if target.is_float:
            if target in NARROW and source in (F64, SI32, UI32):
                return f"{self.named('odd')}((double){x})"
            if target in NARROW and source in (SI64, UI64):
                name = f"ptir_sticky_{s}"
                above = " && x > -((int64_t)1 << 53)" if source is SI64 else ""
                text = STICKY.replace("NAME", name).replace("TYPE", s).replace("ABOVE", above)
                return f"{self.named('odd')}((double){self.use(name, text)}({x}))"
            return x if s == t else f"({t}){x}"
        name = f"ptir_{s}_to_{target}"
        low, high = number(target.min, target), number(target.max, target)
        if source.is_float:
            above = f"x >= {float(1 << (target.bits - target.is_signed))!r}"
            body = f"x != x ? 0 : x <= {float(target.min)!r} ? {low} : {above} ? {high} : ({t})x"
        else:
            tests = []
            if source.min < target.min:
                tests.append(f"x < {low} ? {low} : ")
            if source.max > target.max:
                tests.append(f"x > ({s}){high} ? {high} : ")
            body = f"{''.join(tests)}({t})x"
            if len(tests) == 0:
                return f"({t}){x}"
        return f"{self.use(name, f'static inline {t} {name}({s} x) {{ return {body}; }}')}({x})"

    def next_after(self, dtype: DType, x: str, y: str) -> str:
        """The number next to `x` towards `y`."""
        if dtype in (F32, F64):
            return _libm("nextafter")(self, dtype, x, y)
        sign, own = 1 << dtype.bits - 1, memory(dtype)
        text = f"""static inline float ptir_next_{dtype}(float x, float y)
{{
    const uint32_t u = {self.store(dtype, "x")}, toward = {self.store(dtype, "y")};
    const uint32_t size = u & {sign - 1:#x}, sign = u & {sign:#x};
    const uint32_t moved = size == 0 ? (toward & {sign:#x}) | 1u : sign | ((x < y) == (x > 0) ? size + 1 : size - 1);
    return x != x || y != y ? NAN : x == y ? y : {self.load(dtype, f"({own})moved")};
}}"""
        return f"{self.use(f'ptir_next_{dtype}', text)}({x}, {y})"

    def reduced(self, dtype: DType, exponents: int, mantissa: int, x: str) -> str:
        """`x` rounded to a float of fewer bits: infinite where it is too large, 0 where it is subnormal."""
        own, name, c = dtype.precision - 1, f"ptir_reduced_{dtype}_{exponents}_{mantissa}", computed(dtype)
        u, drop, have = "uint64_t" if dtype is F64 else "uint32_t", max(own - mantissa, 0), dtype.bits - dtype.precision
        sign, infinite = 1 << dtype.bits - 1, (1 << have) - 1 << own
        if dtype is FP8_E4M3:
            infinite = sign - 1  # NaN, since it has no infinity
        lines = [
            f"const {u} all = {self.bits(dtype, 'x')}, sign = all & ({u}){sign:#x};",
            f"{u} size = all & ({u}){sign - 1:#x};",
        ]
        if drop:
            lines.append(f"size = (size + (({u})1 << {drop - 1}) - 1 + (size >> {drop} & 1)) >> {drop} << {drop};")
        if exponents < have:
            bias, most = (1 << have - 1) - 1, (1 << exponents - 1) - 1
            low, high = bias + 1 - most, bias + most
            lines.append(f"size = size >> {own} > {high} ? ({u}){infinite:#x} : size >> {own} < {low} ? 0 : size;")
        lines.append(f"size = size > ({u}){infinite:#x} ? ({u}){infinite:#x} : size;")
        lines.append(f"return x != x ? x : {self.of_bits(dtype, 'sign | size')};")
        body = "".join(f"    {line}\n" for line in lines)
        return f"{self.use(name, f'static inline {c} {name}({c} x){chr(10)}{{{chr(10)}{body}}}')}({x})"

    def power(self, dtype: DType, x: str, y: str) -> str:
        """`x` to the power of `y`. Integers wrap; a negative exponent gives 1 / x**n truncated, and 0 where x is 0."""
        if dtype.is_float:
            return _libm("pow")(self, dtype, x, y)
        t, u = computed(dtype), wrapping(dtype)
        below = "    if (n < 0)\n        return x == 1 ? 1 : x != -1 ? 0 : n % 2 == 0 ? 1 : -1;\n" if dtype.is_signed else ""
        text = f"""static inline {t} ptir_pow_{t}({t} x, {t} n)
{{
    {u} base = ({u})x, result = 1;
{below}    for (; n; n = ({t})(n >> 1)) {{
        result = n & 1 ? result * base : result;
        base *= base;
    }}
    return ({t})result;
}}"""
        return f"{self.use(f'ptir_pow_{t}', text)}({x}, {y})"

    def shifted(self, dtype: DType, kind: str, x: str, y: str) -> str:
        """A shift, of the bits that the dtype has. By the width or more, nothing is left but, in the arithmetic one, the sign."""
        t, bits, name = computed(dtype), dtype.bits, f"ptir_{kind}_{dtype}"
        u = "uint64_t" if bits == 64 else "uint32_t"
        own = "" if bits in (32, 64) else f" & {(1 << bits) - 1:#x}"
        high = f"(({u})0 - (a >> {bits - 1}))"
        shifted = {"left": "a << b", "logical": "a >> b", "arithmetic": f"(a >> b) | ({high} & ~({_ones(dtype, u)} >> b))"}[kind]
        text = f"""static inline {t} {name}({t} x, {t} y)
{{
    const {u} a = ({u})x{own}, b = ({u})y{own};
    return ({t})(b >= {bits} ? {high if kind == "arithmetic" else "0"} : {shifted});
}}"""
        return f"{self.use(name, text)}({x}, {y})"

    def counted(self, dtype: DType, kind: str, x: str) -> str:
        """The bits that are set ("popcount"), or those above the highest one that is ("clz")."""
        t, bits, name = computed(dtype), dtype.bits, f"ptir_{kind}_{dtype}"
        u = "uint64_t" if bits == 64 else "uint32_t"
        own = "" if bits in (32, 64) else f" & {(1 << bits) - 1:#x}"
        start, step = ("0", "n += (int)(a & 1)") if kind == "popcount" else (str(bits), "n--")
        text = f"""static inline {t} {name}({t} x)
{{
    int n = {start};
    for ({u} a = ({u})x{own}; a; a >>= 1)
        {step};
    return ({t})n;
}}"""
        return f"{self.use(name, text)}({x})"


def _ones(dtype: DType, u: str) -> str:
    """All bits of an integer dtype."""
    return f"({u})~({u})0" if dtype.bits in (32, 64) else f"{(1 << dtype.bits) - 1:#x}u"


Scalar = Callable[..., str]  # from the helpers, the dtype of the operands and the operands


def _libm(name: str) -> Scalar:
    return lambda h, d, *xs: f"{name}{'f' if computed(d) == 'float' else ''}({', '.join(xs)})"


def _fast(name: str) -> Scalar:
    """A function of floats that compilers make vectors of; `libm` has it for f64."""
    return lambda h, d, x: f"{h.named(name)}({x})" if computed(d) == "float" else f"{name}({x})"


def _infix(op: str) -> Scalar:
    return lambda h, d, x, y: h.wrapped(d, op, x, y)


def _neg(h: Helpers, d: DType, x: str) -> str:
    return f"(-{x})" if d.is_float else h.wrapped(d, "-", "0", x)


def _abs(h: Helpers, d: DType, x: str) -> str:
    if d.is_float:
        return f"fabs{'f' if computed(d) == 'float' else ''}({x})"
    return f"({x} < 0 ? {_neg(h, d, x)} : {x})" if d.is_signed else x


def _one(d: DType) -> str:
    return "1.0f" if computed(d) == "float" else "1.0"


def _compare(op: str) -> Scalar:
    return lambda h, d, x, y: f"(uint8_t)({x} {op} {y})"


def _sign(h: Helpers, d: DType, x: str) -> str:
    one = _one(d)
    if d.is_float:
        return f"({x} > 0 ? {one} : {x} < 0 ? -{one} : {x})"
    return f"({computed(d)})(({x} > 0) - ({x} < 0))" if d.is_signed else f"({computed(d)})({x} > 0)"


def _shift(kind: str) -> Scalar:
    return lambda h, d, x, y: h.shifted(d, kind, x, y)


def _not(h: Helpers, d: DType, x: str) -> str:
    return f"(uint8_t)(!{x})" if d is I1 else f"({computed(d)})~{x}"


ELEMENTS: dict[str, Scalar] = {
    "neg": _neg, "abs": _abs, "exp": _fast("exp"), "log": _fast("log"), "tanh": _fast("tanh"), "erf": _fast("erf"),
    "rsqrt": lambda h, d, x: f"({_one(d)} / {_libm('sqrt')(h, d, x)})",
    "reciprocal": lambda h, d, x: f"({_one(d)} / {x})",
    "add": _infix("+"), "sub": _infix("-"), "mul": _infix("*"),
    "div": lambda h, d, x, y: h.divided(d, x, y), "rem": lambda h, d, x, y: h.divided(d, x, y, "rem"),
    "mod": lambda h, d, x, y: h.divided(d, x, y, "mod"),
    "maximum": lambda h, d, x, y: h.extreme(d, "max", x, y), "minimum": lambda h, d, x, y: h.extreme(d, "min", x, y),
    "clamp": lambda h, d, x, lo, hi: h.extreme(d, "min", h.extreme(d, "max", x, lo), hi),
    **{f"compare_{k}": _compare(op) for k, op in
       {"lt": "<", "le": "<=", "eq": "==", "ge": ">=", "gt": ">", "ne": "!="}.items()},
    "select": lambda h, d, p, x, y: f"({p} ? {x} : {y})",
    "stop_gradient": lambda h, d, x: x,
    "floor": _libm("floor"), "ceil": _libm("ceil"), "round_even": _libm("rint"), "round_away": _libm("round"),
    "sign": _sign, "is_finite": lambda h, d, x: f"(uint8_t)(isfinite({x}) != 0)",
    "bitwise_and": lambda h, d, x, y: f"({computed(d)})({x} & {y})",
    "bitwise_or": lambda h, d, x, y: f"({computed(d)})({x} | {y})",
    "bitwise_xor": lambda h, d, x, y: f"({computed(d)})({x} ^ {y})",
    "bitwise_not": _not,
    "pow": Helpers.power, "lgamma": _libm("lgamma"), "nextafter": Helpers.next_after,
    "real": lambda h, d, x: f"{x}.re", "imag": lambda h, d, x: f"{x}.im",
    "complex": lambda h, d, re, im: complexes.made(h.use, CF64 if d is F64 else CF32, re, im),
    **{f"shift_{name}": _shift(kind) for name, kind in
       {"left": "left", "right_logical": "logical", "right_arithmetic": "arithmetic"}.items()},
    "popcount": lambda h, d, x: h.counted(d, "popcount", x), "count_leading_zeros": lambda h, d, x: h.counted(d, "clz", x),
    **{name: _libm(name) for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "log1p", "expm1", "cbrt",
    )},
}  # fmt: skip


def _of_parts(name: str, real: Scalar) -> Scalar:
    """An op on complex numbers, too."""
    return lambda h, d, *xs: complexes.applied(h.use, d, name, *xs) if d.is_complex else real(h, d, *xs)


def _equality(name: str, real: Scalar) -> Scalar:
    return lambda h, d, x, y: complexes.compared(name, x, y) if d.is_complex else real(h, d, x, y)


ELEMENTS |= {name: _of_parts(name, ELEMENTS[name]) for name in complexes.NAMES}
ELEMENTS |= {name: _equality(name, ELEMENTS[name]) for name in ("compare_eq", "compare_ne")}

_BITS = """static inline uint32_t ptir_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}"""
_FLOAT_OF = """static inline float ptir_float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}"""


def _wide(text: str) -> str:
    """The same for f64."""
    text = text.replace("bits(", "bits64(").replace("float_of", "double_of").replace("float", "double")
    return text.replace("uint32_t", "uint64_t").replace("4)", "8)")


STICKY = """/* With at most 53 significant bits: of a larger number the last bits become one that is 1 unless all are 0. */
static inline TYPE NAME(TYPE x)
{
    const TYPE low = x & 0xfff;
    const int small = x < (TYPE)1 << 53ABOVE;
    return small || low == 0 ? x : (x - low) | 0x800;
}"""
# By name: the functions that it needs, and its text. They have no branches, so that compilers make vectors of them.
FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "to_si4": ((), "static inline int8_t ptir_to_si4(int8_t x) { return (int8_t)(((x & 15) ^ 8) - 8); }"),
    "to_ui4": ((), "static inline uint8_t ptir_to_ui4(uint8_t x) { return x & 15; }"),
    "bits": ((), _BITS),
    "float_of": ((), _FLOAT_OF),
    "bits64": ((), _wide(_BITS)),
    "double_of": ((), _wide(_FLOAT_OF)),
    "exp": (("bits", "float_of"), """static inline float ptir_exp(float x)
{
    const float low = x < -105.0f ? -105.0f : x, y = low > 90.0f ? 90.0f : low;
    const float shifted = y * 1.44269504f + 0x1.8p23f, whole = shifted - 0x1.8p23f;
    const float r = (y - whole * 0.693359375f) + whole * 2.12194440e-4f, square = r * r;
    const float p = square * (1.381458389e-3f * r + 8.368724096e-3f) + (4.166838874e-2f * r + 1.666652057e-1f);
    const float e = (p * r + 4.999999344e-1f) * square + r + 1.0f;
    const int32_t n = (int32_t)(ptir_bits(shifted) - 0x4b400000u), half = n >> 1;
    return e * ptir_float_of((uint32_t)(127 + half) << 23) * ptir_float_of((uint32_t)(127 + n - half) << 23);
}"""),
    "log": (("bits", "float_of"), """static inline float ptir_log(float x)
{
    const int small = x < 0x1p-126f;
    const uint32_t u = ptir_bits(small ? x * 0x1p23f : x);
    const int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
    const float f = ptir_float_of(u - ((uint32_t)e << 23)) - 1.0f, exponent = (float)e + (small ? -23.0f : 0.0f);
    float p = 6.746608080e-2f;
    p = p * f + -1.167564144e-1f;
    p = p * f + 1.188817160e-1f;
    p = p * f + -1.240559128e-1f;
    p = p * f + 1.421955133e-1f;
    p = p * f + -1.666799568e-1f;
    p = p * f + 2.000211871e-1f;
    p = p * f + -2.500000960e-1f;
    p = p * f + 3.333331260e-1f;
    float y = f + (p * f - 0.5f) * (f * f);
    y = (y - exponent * 2.12194440e-4f) + exponent * 0.693359375f;
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0f ? y : NAN;
}"""),
    "tanh": ((), """static inline float ptir_tanh(float x)
{
    const float t = x * x;
    float p = 3.683617833e-11f, q = 2.956608308e-09f;
    p = p * t + 1.113220897e-07f;
    p = p * t + 4.229904046e-05f;
    p = p * t + 4.426928195e-03f;
    p = p * t + 1.409994374e-01f;
    p = p * t + 1.0f;
    q = q * t + 2.606210747e-06f;
    q = q * t + 5.010227313e-04f;
    q = q * t + 2.920451903e-02f;
    q = q * t + 4.743327704e-01f;
    q = q * t + 1.0f;
    const float y = x * (p / q);
    return x > 7.9f ? 1.0f : x < -7.9f ? -1.0f : y;
}"""),
    "erf": ((), """static inline float ptir_erf(float x)
{
    const float t = x * x;
    float p = 1.9867809e-06f, q = 3.7420167e-05f;
    p = p * t + 2.8456606e-04f;
    p = p * t + 3.8833523e-03f;
    p = p * t + 5.3101775e-02f;
    p = p * t + 1.9354526e-01f;
    p = p * t + 1.1283791f;
    q = q * t + 1.1855730e-03f;
    q = q * t + 1.5207269e-02f;
    q = q * t + 1.1535008e-01f;
    q = q * t + 5.0485758e-01f;
    q = q * t + 1.0f;
    const float y = x * (p / q);
    return x > 3.64f ? 1.0f : x < -3.64f ? -1.0f : y;
}"""),
    "from_bf16": (("float_of",), "static inline float ptir_from_bf16(uint16_t u) { return ptir_float_of((uint32_t)u << 16); }"),
    "to_bf16": (("bits",), """static inline uint16_t ptir_to_bf16(float x)
{
    const uint32_t u = ptir_bits(x);
    return (uint16_t)(x != x ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}"""),
    "from_f16": (("float_of",), """static inline float ptir_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu;
    const float small = (float)a * 0x1p-24f, normal = ptir_float_of((a << 13) + 0x38000000u);
    const float special = ptir_float_of(0x7f800000u | (a & 0x3ffu) << 13);
    const float y = a < 0x400u ? small : a < 0x7c00u ? normal : special;
    return sign ? -y : y;
}"""),
    "to_f16": (("bits", "float_of"), """static inline uint16_t ptir_to_f16(float x)
{
    const uint32_t u = ptir_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    const uint32_t small = ptir_bits(ptir_float_of(a) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    const uint32_t y = a > 0x7f800000u ? 0x7e00u : a >= 0x477ff000u ? 0x7c00u : a < 0x38800000u ? small : normal;
    return (uint16_t)(sign | y);
}"""),
    "from_fp8_e5m2": (("from_f16",), """static inline float ptir_from_fp8_e5m2(uint8_t u)
{
    return ptir_from_f16((uint16_t)(u << 8));
}"""),
    "from_fp8_e4m3": (("float_of",), """static inline float ptir_from_fp8_e4m3(uint8_t u)
{
    const uint32_t a = u & 0x7fu;
    const float normal = ptir_float_of((a << 20) + 0x3c000000u), y = a < 8 ? (float)a * 0x1p-9f : a == 0x7f ? NAN : normal;
    return u & 0x80u ? -y : y;
}"""),
    "to_fp8_e5m2": (("bits", "float_of"), """static inline uint8_t ptir_to_fp8_e5m2(float x)
{
    const uint32_t u = ptir_bits(x), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    const uint32_t small = ptir_bits(ptir_float_of(a) + 128.0f) - 0x43000000u;
    const uint32_t normal = (a + 0xfffffu + (a >> 21 & 1u) - 0x38000000u) >> 21;
    const uint32_t y = a > 0x7f800000u ? 0x7eu : a >= 0x47700000u ? 0x7cu : a < 0x38800000u ? small : normal;
    return (uint8_t)(sign | y);
}"""),
    "to_fp8_e4m3": (("bits", "float_of"), """static inline uint8_t ptir_to_fp8_e4m3(float x)
{
    const uint32_t u = ptir_bits(x), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
    const uint32_t small = ptir_bits(ptir_float_of(a) + 16384.0f) - 0x46800000u;
    const uint32_t normal = (a + 0x7ffffu + (a >> 20 & 1u) - 0x3c000000u) >> 20;
    const uint32_t y = a > 0x43e80000u ? 0x7fu : a < 0x3c800000u ? small : normal;
    return (uint8_t)(sign | y);
}"""),
    "odd": (("bits", "float_of"), """/* To float, rounded to odd: rounding once more to fewer bits is then right. */
static inline float ptir_odd(double x)
{
    const float f = (float)x;
    if ((double)f == x || f != f)
        return f;
    return ptir_float_of((ptir_bits(f) - (fabs((double)f) > fabs(x))) | 1u);
}"""),
    "floordiv": ((), """static inline int64_t ptir_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }"""),
    "mod": ((), """static inline int64_t ptir_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }"""),
    "inside": ((), """static inline int ptir_inside(int64_t i, int64_t n, int *bad)
{
    const int inside = i >= 0 && i < n;
    if (!inside)
        *bad = 2;
    return inside;
}"""),
}  # fmt: skip


def product(helpers: Helpers, dtype: DType) -> tuple[str, str]:
    """The function `c = a b` of row-major matrices: its name and text."""
    t, total = computed(dtype), wrapping(dtype)
    name = f"ptir_product_{t}"
    x, y, own, zero = "a[(i + r) * k + l]", "b[l * n + j + s]", "sums[r][s]", "{{0}}"
    step, result = f"{own} += ({total}){x} * ({total}){y}", f"({t}){own}"
    if dtype.is_complex:
        step, result, zero = f"{own} = {helpers.wrapped(dtype, '+', own, helpers.wrapped(dtype, '*', x, y))}", own, "{{{0, 0}}}"
    fused = "PTIR_FUSED " if dtype.is_float else ""
    return (
        name,
        f"""/* c (m x n) = a (m x k) b (k x n), of dense rows. */
{fused}PTIR_COPIES static void {name}(
    int64_t m, int64_t n, int64_t k, const {t} *restrict a, const {t} *restrict b, {t} *restrict c)
{{
    enum {{ ROWS = 4, COLUMNS = 32 }};
    for (int64_t j = 0; j < n; j += COLUMNS)
        for (int64_t i = 0; i < m; i += ROWS) {{
            const int64_t rows = m - i < ROWS ? m - i : ROWS, columns = n - j < COLUMNS ? n - j : COLUMNS;
            {total} sums[ROWS][COLUMNS] = {zero};
            if (rows == ROWS && columns == COLUMNS)
                for (int64_t l = 0; l < k; l++)
                    for (int r = 0; r < ROWS; r++)
                        for (int s = 0; s < COLUMNS; s++)
                            {step};
            else
                for (int64_t l = 0; l < k; l++)
                    for (int64_t r = 0; r < rows; r++)
                        for (int64_t s = 0; s < columns; s++)
                            {step};
            for (int64_t r = 0; r < rows; r++)
                for (int64_t s = 0; s < columns; s++)
                    c[(i + r) * n + j + s] = {result};
        }}
}}""",
    )
