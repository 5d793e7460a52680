"""Rules of the extension ops: powers, bits. The labels are described in `algebra`."""

from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.rewrite.rules import rules

RULES = """
    pow-one:            pow(x, 1)                                => x
    pow-zero:           pow(x, 0)                                => 1           if real(x)
    pow-two:            pow(x, 2)                                => mul(x, x)   if real(x)                 [nan-payload]
    pow-minus-one:      pow(x, -1)                               => reciprocal(x)   if floating(x)         [nan-payload]
    pow-half:           pow(x, 0.5)                              => reciprocal(rsqrt(x))   if floating(x)  [range]
    pow-minus-half:     pow(x, -0.5)                             => rsqrt(x)    if floating(x)             [range]

    and-zero:           bitwise_and(_, 0)                        => 0
    or-zero:            bitwise_or(x, 0)                         => x
    xor-zero:           bitwise_xor(x, 0)                        => x
    xor-self:           bitwise_xor(x, x)                        => 0           if integer(x)
    and-true:           bitwise_and(p, True)                     => p
    and-false:          bitwise_and(_, False)                    => False
    or-true:            bitwise_or(_, True)                      => True
    or-false:           bitwise_or(p, False)                     => p
    xor-true:           bitwise_xor(p, True)                     => bitwise_not(p)
    xor-false:          bitwise_xor(p, False)                    => p
    shift-left-zero:    shift_left(x, 0)                         => x
    shift-right-zero:   shift_right_logical(x, 0)                => x
    shift-arithmetic-zero: shift_right_arithmetic(x, 0)          => x
    not-of-equal:       bitwise_not(once compare_eq(a, b))       => compare_ne(a, b)
    not-of-unequal:     bitwise_not(once compare_ne(a, b))       => compare_eq(a, b)
    """

EXTENSIONS = rules(RULES, DIALECT, HELPERS, splat)
