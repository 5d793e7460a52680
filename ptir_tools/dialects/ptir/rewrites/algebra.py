"""Rules of arithmetic: identities, inverses, constants brought together. How to write one: docs/rules-for-rules.md.

What a rule may change in floating point stands behind it; integers, which wrap, never change. `range`: a NaN or infinity may
become a number, or the other way round. Complex numbers are multiplied by parts, so that a factor 1 can make a NaN of an
infinity: what multiplies or divides is exact for reals alone.
"""

from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.rewrite.rules import rules

RULES = """
    # A token 0 matches both zeros of a float, 0.0 and -0.0 one of them.
    add-negative-zero:  add(x, -0.0)                             => x
    add-zero:           add(x, 0)                                => x                                      [zero-sign]
    sub-positive-zero:  sub(x, 0.0)                              => x
    sub-zero:           sub(x, 0)                                => x                                      [zero-sign]
    mul-one:            mul(x, 1)                                => x           if real(x)
    div-one:            div(x, 1)                                => x           if real(x)
    mul-one-complex:    mul(x, 1)                                => x                                      [range]
    div-one-complex:    div(x, 1)                                => x                                      [range]
    mul-zero:           mul(x, 0)                                => 0                                      [range]
    zero-div:           div(0, x)                                => 0           if floating(x)             [range]
    mul-minus-one:      mul(x, -1)                               => neg(x)      if real(x)                 [nan-payload]
    div-minus-one:      div(x, -1)                               => neg(x)      if real(x)                 [nan-payload]
    minus-zero-sub:     sub(-0.0, x)                             => neg(x)                                 [nan-payload]
    zero-sub:           sub(0, x)                                => neg(x)                                 [zero-sign]
    one-div:            div(1, x)                                => reciprocal(x)
    div-power:          div(x, c)                                => mul(x, reciprocal(c))
                        if constant(c) and power_of_two(c) and not constant(x) and alone(rw, c, root)
    div-constant:       div(x, c)                                => mul(x, reciprocal(c))
                        if constant(c) and floating(x) and not constant(x) and alone(rw, c, root)          [range]

    abs-neg:            abs(neg(x))                              => abs(x)
    abs-square:         abs(y := mul(x, x))                      => y           if floating(x)             [nan-payload]
    abs-exp:            abs(y := exp(_))                         => y                                      [nan-payload]
    sub-neg:            sub(x, neg(y))                           => add(x, y)                              [nan-payload]
    add-neg:            add(x, neg(y))                           => sub(x, y)                              [nan-payload]
    neg-sub:            neg(sub(x, y))                           => sub(y, x)                              [zero-sign]
    mul-neg-neg:        mul(neg(x), neg(y))                      => mul(x, y)                              [nan-payload]
    mul-abs-abs:        mul(abs(x), abs(x))                      => mul(x, x)                              [nan-payload]
    div-neg-neg:        div(neg(x), neg(y))                      => div(x, y)   if floating(x)             [nan-payload]
    mul-neg-constant:   mul(y := neg(x), c)                      => mul(x, neg(c))
                        if constant(c) and not constant(x) and alone(rw, y, root)                          [nan-payload]
    neg-mul-constant:   neg(y := mul(x, c))                      => mul(x, neg(c))
                        if constant(c) and not constant(x) and alone(rw, y, root)                          [nan-payload]
    div-neg-constant:   div(y := neg(x), c)                      => div(x, neg(c))
                        if floating(x) and constant(c) and not constant(x) and alone(rw, y, root)          [nan-payload]
    neg-div-constant:   neg(y := div(x, c))                      => div(x, neg(c))
                        if floating(x) and constant(c) and not constant(x) and alone(rw, y, root)          [nan-payload]
    neg-odd:            neg(y := elementwise_unary(neg(x)))      => elementwise_unary(x)   if odd(y)       [nan-payload]

    sub-self:           sub(x, x)                                => 0                                      [range]
    div-self:           div(x, x)                                => 1           if floating(x)             [range]
    sub-of-add:         sub(add(x, y), y)                        => x                                      [range]
    sub-of-add-left:    sub(y, add(x, y))                        => neg(x)                                 [range]
    add-of-sub:         add(sub(x, y), y)                        => x                                      [range]
    sub-of-adds:        sub(add(x, z), add(y, z))                => sub(x, y)                              [range]
    sub-of-sub:         sub(x, sub(x, y))                        => y                                      [range]
    mul-of-div:         mul(div(x, y), y)                        => x           if floating(x)             [range]
    div-of-mul:         div(mul(x, y), y)                        => x           if floating(x)             [range]

    maximum-again:      maximum(m := maximum(x, y), y)           => m                                      [nan-payload]
    minimum-again:      minimum(m := minimum(x, y), y)           => m                                      [nan-payload]

    # Constants meet: (x + a) + b is x + (a + b).
    add-constants:      add(i := add(x, a), b)                   => add(x, add(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    add-sub-constants:  add(i := sub(x, a), b)                   => add(x, sub(b, a))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    sub-add-constants:  sub(i := add(x, a), b)                   => add(x, sub(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    sub-sub-constants:  sub(i := sub(x, a), b)                   => sub(x, add(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    add-constant-sub:   add(i := sub(a, x), b)                   => sub(add(a, b), x)
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    sub-constant-sub:   sub(i := sub(a, x), b)                   => sub(sub(a, b), x)
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    constant-sub-add:   sub(a, i := add(x, b))                   => sub(sub(a, b), x)
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    constant-sub-sub:   sub(a, i := sub(x, b))                   => sub(add(a, b), x)
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    constant-sub-from:  sub(a, i := sub(b, x))                   => add(x, sub(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    mul-constants:      mul(i := mul(x, a), b)                   => mul(x, mul(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [range]
    maximum-constants:  maximum(i := maximum(x, a), b)           => maximum(x, maximum(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [nan-payload]
    minimum-constants:  minimum(i := minimum(x, a), b)           => minimum(x, minimum(a, b))
                        if constant(a) and constant(b) and not constant(x) and alone(rw, i, root)          [nan-payload]

    maximum-minimum:    maximum(minimum(x, y), x)                => x                                      [range]
    minimum-maximum:    minimum(maximum(x, y), x)                => x                                      [range]
    maximum-lowest:     maximum(x, c)                            => x           if constant(c) and lowest(c)
    minimum-highest:    minimum(x, c)                            => x           if constant(c) and highest(c)
    maximum-highest:    maximum(x, c)                            => c           if constant(c) and highest(c)  [range]
    minimum-lowest:     minimum(x, c)                            => c           if constant(c) and lowest(c)   [range]
    maximum-exp:        maximum(y := exp(_), 0)                  => y                                      [nan-payload]
    maximum-abs:        maximum(y := abs(x), 0)                  => y           if floating(x)             [nan-payload]
    abs-maximum:        abs(y := maximum(_, 0))                  => y                                      [nan-payload]
    maximum-in-range:   maximum(y := minimum(maximum(_, a), b), a) => y
                        if constant(a) and constant(b) and ordered(a, b)                                   [nan-payload]
    minimum-in-range:   minimum(y := maximum(minimum(_, b), a), b) => y
                        if constant(a) and constant(b) and ordered(a, b)                                   [nan-payload]
    maximum-of-clamp:   maximum(y := clamp(_, a, b), a)          => y
                        if constant(a) and constant(b) and ordered(a, b)                                   [nan-payload]
    minimum-of-clamp:   minimum(y := clamp(_, _, b), b)          => y                                      [nan-payload]

    clamp-at-lower:     clamp(x, x, y)                           => minimum(x, y)
    clamp-at-upper:     clamp(x, _, x)                           => x                                      [range]
    clamp-to-one:       clamp(_, y, y)                           => y                                      [range]
    clamp-again:        clamp(c := clamp(_, a, b), a, b)         => c                                      [nan-payload]
    clamp-below:        clamp(x, a, b)                           => maximum(x, a)  if constant(b) and highest(b)
    clamp-above:        clamp(x, a, b)                           => minimum(x, b)  if constant(a) and lowest(a)

    maximum-neg:        maximum(x, neg(x))                       => abs(x)                                 [nan-payload]

    # Powers are captured as exp(p * log(x)), square roots as reciprocal(rsqrt(x)).
    square:             exp(mul(log(x), 2))                      => mul(x, x)   if floating(x)             [range]
    square-root:        exp(y := mul(log(x), 0.5))               => reciprocal(rsqrt(x))   if alone(rw, y, root)  [range]
    one-over-root:      exp(mul(log(x), -0.5))                   => rsqrt(x)                               [range]
    one-over:           exp(neg(log(x)))                         => reciprocal(x)                          [range]
    root-squared:       mul(reciprocal(rsqrt(x)), reciprocal(rsqrt(x)))  => x                              [range]
    reciprocal-twice:   reciprocal(reciprocal(x))                => x                                      [range]
    reciprocal-div:     reciprocal(div(x, y))                    => div(y, x)                              [range]
    mul-reciprocal:     mul(x, reciprocal(y))                    => div(x, y)   if not constant(y)         [range]
    div-reciprocal:     div(x, reciprocal(y))                    => mul(x, y)                              [range]
    log-exp:            log(exp(x))                              => x           if floating(x)             [range]
    exp-log:            exp(log(x))                              => x           if floating(x)             [range]
    mul-exp:            mul(a := exp(x), b := exp(y))            => exp(add(x, y))
                        if alone(rw, a, root) and alone(rw, b, root)                                       [range]
    div-exp:            div(a := exp(x), b := exp(y))            => exp(sub(x, y))
                        if alone(rw, a, root) and alone(rw, b, root)                                       [range]
    add-log:            add(a := log(x), b := log(y))            => log(mul(x, y))
                        if alone(rw, a, root) and alone(rw, b, root)                                       [range]
    sub-log:            sub(a := log(x), b := log(y))            => log(div(x, y))
                        if alone(rw, a, root) and alone(rw, b, root)                                       [range]
    mul-rsqrt:          mul(rsqrt(x), rsqrt(x))                  => reciprocal(x)                          [range]
    div-div:            div(q := div(x, y), z)                   => div(x, mul(y, z))
                        if floating(x) and not constant(z) and alone(rw, q, root)                          [range]
    div-by-div:         div(x, q := div(y, z))                   => div(mul(x, z), y)
                        if floating(x) and alone(rw, q, root)                                              [range]
    """

ALGEBRA = rules(RULES, DIALECT, HELPERS, splat)
