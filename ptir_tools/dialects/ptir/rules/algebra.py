"""Rules of elementwise ops: identities, inverses, comparisons, selection, conversion. How to write one: docs/rules-for-rules.md.

What a rule may change in floating point stands behind it; integers, which wrap, never change. `range`: a NaN or infinity may
become a number, or the other way round.
"""

from ptir_tools.core.rules import rules
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rules.helpers import HELPERS, splat

ALGEBRA = rules(
    """
    # A token 0 matches both zeros of a float, 0.0 and -0.0 one of them.
    add-negative-zero:  add(x, -0.0)                             => x
    add-zero:           add(x, 0)                                => x                                      [zero-sign]
    sub-positive-zero:  sub(x, 0.0)                              => x
    sub-zero:           sub(x, 0)                                => x                                      [zero-sign]
    mul-one:            mul(x, 1)                                => x
    div-one:            div(x, 1)                                => x
    mul-zero:           mul(x, 0)                                => 0                                      [range]
    mul-minus-one:      mul(x, -1)                               => neg(x)                                 [nan-payload]
    div-minus-one:      div(x, -1)                               => neg(x)                                 [nan-payload]
    minus-zero-sub:     sub(-0.0, x)                             => neg(x)                                 [nan-payload]
    zero-sub:           sub(0, x)                                => neg(x)                                 [zero-sign]
    one-div:            div(1, x)                                => reciprocal(x)

    neg-neg:            neg(neg(x))                              => x
    abs-neg:            abs(neg(x))                              => abs(x)
    abs-abs:            abs(abs(x))                              => abs(x)
    sub-neg:            sub(x, neg(y))                           => add(x, y)                              [nan-payload]
    add-neg:            add(x, neg(y))                           => sub(x, y)                              [nan-payload]
    mul-neg-neg:        mul(neg(x), neg(y))                      => mul(x, y)                              [nan-payload]
    div-neg-neg:        div(neg(x), neg(y))                      => div(x, y)   if floating(x)             [nan-payload]
    neg-sub:            neg(sub(x, y))                           => sub(y, x)                              [zero-sign]

    sub-self:           sub(x, x)                                => 0                                      [range]
    div-self:           div(x, x)                                => 1           if floating(x)             [range]
    maximum-self:       maximum(x, x)                            => x
    minimum-self:       minimum(x, x)                            => x
    maximum-again:      maximum(m := maximum(x, y), y)           => m                                      [zero-sign]
    minimum-again:      minimum(m := minimum(x, y), y)           => m                                      [zero-sign]
    maximum-minimum:    maximum(minimum(x, y), x)                => x           if integer(x)
    minimum-maximum:    minimum(maximum(x, y), x)                => x           if integer(x)
    clamp-again:        clamp(c := clamp(_, a, b), a, b)         => c                                      [zero-sign]
    sub-of-add:         sub(add(x, y), y)                        => x                                      [range]
    add-of-sub:         add(sub(x, y), y)                        => x                                      [range]
    sub-of-sub:         sub(x, sub(x, y))                        => y                                      [range]

    add-constants:      add(i := add(x, a), b)                   => add(x, add(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    mul-constants:      mul(i := mul(x, a), b)                   => mul(x, mul(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]

    reciprocal-twice:   reciprocal(reciprocal(x))                => x                                      [range]
    log-exp:            log(exp(x))                              => x           if floating(x)             [range]
    exp-log:            exp(log(x))                              => x           if floating(x)             [range]
    mul-reciprocal:     mul(x, reciprocal(y))                    => div(x, y)                              [range]

    less-self:          compare_lt(x, x)                         => False
    greater-self:       compare_gt(x, x)                         => False
    equal-self:         compare_eq(x, x)                         => True                                   [range]
    unequal-self:       compare_ne(x, x)                         => False                                  [range]
    less-equal-self:    compare_le(x, x)                         => True                                   [range]
    greater-equal-self: compare_ge(x, x)                         => True                                   [range]
    less-right:         compare_lt(c, x)           => compare_gt(x, c)   if constant(c) and not constant(x)
    less-equal-right:   compare_le(c, x)           => compare_ge(x, c)   if constant(c) and not constant(x)
    greater-right:      compare_gt(c, x)           => compare_lt(x, c)   if constant(c) and not constant(x)
    greater-equal-right: compare_ge(c, x)          => compare_le(x, c)   if constant(c) and not constant(x)
    is-true:            compare_eq(p, True)                      => p
    is-not-false:       compare_ne(p, False)                     => p
    not-not:            compare_eq(compare_eq(p, False), False)  => p
    not-not-true:       compare_ne(compare_ne(p, True), True)    => p

    select-true:        select(True, x, _)                       => x
    select-false:       select(False, _, y)                      => y
    select-same:        select(_, x, x)                          => x
    select-predicate:   select(p, True, False)                   => p
    select-not:         select(compare_eq(p, False), x, y)       => select(p, y, x)
    select-true-arm:    select(p, select(p, x, _), y)            => select(p, x, y)
    select-false-arm:   select(p, x, select(p, _, y))            => select(p, x, y)

    cast-same:          cast(x, dtype=d)                         => x           if dtype(x) is d
    cast-chain:         cast(cast(x, dtype=d), dtype=e)          => cast(x, dtype=e)   if lossless(dtype(x), d)
    """,
    DIALECT,
    HELPERS,
    splat,
)
