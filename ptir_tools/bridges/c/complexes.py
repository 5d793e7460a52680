"""Complex numbers in C: a struct of two parts, which has the bytes of an element of memory, and functions of it.

Products are computed by parts, quotients by Smith's method, and functions by the C library in `double`.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.dtypes import CF32, CF64, DType

Use = Callable[[str, str], str]  # writes a helper function, its name and text, once

PARTS = {CF32: "float", CF64: "double"}  # the C types of the parts
_LIBRARY = ("exp", "log", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
# Of the parts a, b of x and c, d of y: the parts of the result.
_BY_PARTS = {
    "neg": ("-a", "-b"), "add": ("a + c", "b + d"), "sub": ("a - c", "b - d"), "mul": ("a * c - b * d", "a * d + b * c"),
}  # fmt: skip
_SMITH = """    const double p = fabs(c), q = fabs(d);
    if (p == 0 && q == 0)
        return NEW(a / p, b / p);
    if (p >= q) {
        const double r = d / c, s = 1.0 / (c + d * r);
        return NEW((a + b * r) * s, (b - a * r) * s);
    }
    const double r = c / d, s = 1.0 / (d + c * r);
    return NEW((a * r + b) * s, (b * r - a) * s);"""
_EXPM1 = """    const double half = sin(b / 2);
    return NEW(expm1(a) * cos(b) - 2 * half * half, exp(a) * sin(b));"""
_LOG1P = """    if (a * a + b * b < 0.25)
        return NEW(0.5 * log1p(a * (2 + a) + b * b), atan2(b, 1 + a));
    const double _Complex z = clog(ptir_joined(1 + a, b + 0.0));
    return NEW(creal(z), cimag(z));"""
_POW = """    if (c == 0 && d == 0)
        return NEW(1, 0);
    if (a == 0 && b == 0)
        return c > 0 ? NEW(0, 0) : NEW(NAN, NAN);
    const double _Complex z = cpow(ptir_joined(a, b), ptir_joined(c, d));
    return NEW(creal(z), cimag(z));"""
_JOINED = """static inline double _Complex ptir_joined(double re, double im)
{
    const double parts[2] = {re, im};
    double _Complex z;
    memcpy(&z, parts, 16);
    return z;
}"""


def made(use: Use, dtype: DType, re: str, im: str) -> str:
    """The complex number of two parts."""
    t, part = f"ptir_{dtype}", PARTS[dtype]
    text = f"static inline {t} {t}_of(double re, double im)\n{{\n    const {t} z = {{({part})re, ({part})im}};\n    return z;\n}}"
    return f"{use(f'{t}_of', text)}({re}, {im})"


def applied(use: Use, dtype: DType, name: str, *operands: str) -> str:
    """An op on complex numbers: a call of a helper function."""
    t = f"ptir_{dtype}"
    own = f"ptir_{name}_{dtype}"
    made(use, dtype, "", "")
    takes = ", ".join(f"{t} {x}" for x in "xy"[: len(operands)])
    parts = "    const double a = x.re, b = x.im" + (", c = y.re, d = y.im;" if len(operands) > 1 else ";")
    if name in _BY_PARTS:
        body = f"{parts}\n    return {t}_of({', '.join(_BY_PARTS[name])});"
    elif name == "div":
        body = f"{parts}\n{_SMITH}"
    elif name == "reciprocal":
        applied(use, dtype, "div", "", "")
        body = f"    return ptir_div_{dtype}({t}_of(1, 0), x);"
    elif name == "expm1":
        body = f"{parts}\n{_EXPM1}"
    else:
        use("ptir_joined", _JOINED)
        if name == "rsqrt":
            applied(use, CF64, "reciprocal", "")
            root = "    const double _Complex s = csqrt(ptir_joined(x.re, x.im));\n"
            body = f"{root}    const ptir_cf64 z = ptir_reciprocal_cf64(ptir_cf64_of(creal(s), cimag(s)));\n"
            body += f"    return {t}_of(z.re, z.im);"
        elif name in ("log1p", "pow"):
            body = f"{parts}\n{_LOG1P if name == 'log1p' else _POW}"
        else:
            body = f"    const double _Complex z = c{name}(ptir_joined(x.re, x.im));\n"
            body += f"    return {t}_of(creal(z), cimag(z));"
    use(own, f"static inline {t} {own}({takes})\n{{\n{body.replace('NEW', f'{t}_of')}\n}}")
    return f"{own}({', '.join(operands)})"


def compared(name: str, x: str, y: str) -> str:
    """Whether both parts are equal, or one differs."""
    join, op = ("&&", "==") if name == "compare_eq" else ("||", "!=")
    return f"(uint8_t)({x}.re {op} {y}.re {join} {x}.im {op} {y}.im)"


TYPES = {f"ptir_{d}": f"typedef struct {{\n    {part} re, im;\n}} ptir_{d};\n\n" for d, part in PARTS.items()}
NAMES = (*_LIBRARY, *_BY_PARTS, "div", "reciprocal", "rsqrt", "expm1", "log1p", "pow")
