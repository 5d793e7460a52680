"""Rules of arithmetic: identities, inverses, reassociation of constants. docs/rules-for-rules.md describes the notation.

The label after a rule says what it may change in floating point. Integers wrap and never change. `range`: a NaN or infinity may
become a number, or the other way round. Complex numbers are multiplied by parts, so a factor 1 can turn an infinity into a NaN.
Rules that multiply or divide are therefore exact for reals only.
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
    div-power:          div(var x, once const c)                 => mul(x, reciprocal(c))   if power_of_two(c)
    div-constant:       div(var x, once const c)                 => mul(x, reciprocal(c))   if floating(x) [range]

    abs-neg:            abs(neg(x))                              => abs(x)
    abs-square:         abs(y := mul(x, x))                      => y           if floating(x)             [nan-payload]
    abs-exp:            abs(y := exp(_))                         => y                                      [nan-payload]
    sub-neg:            sub(x, neg(y))                           => add(x, y)                              [nan-payload]
    add-neg:            add(x, neg(y))                           => sub(x, y)                              [nan-payload]
    neg-sub:            neg(sub(x, y))                           => sub(y, x)                              [zero-sign]
    mul-neg-neg:        mul(neg(x), neg(y))                      => mul(x, y)                              [nan-payload]
    mul-abs-abs:        mul(abs(x), abs(x))                      => mul(x, x)                              [nan-payload]
    div-neg-neg:        div(neg(x), neg(y))                      => div(x, y)   if floating(x)             [nan-payload]
    mul-neg-constant:   mul(once neg(var x), const c)            => mul(x, neg(c))                         [nan-payload]
    neg-mul-constant:   neg(once mul(var x, const c))            => mul(x, neg(c))                         [nan-payload]
    div-neg-constant:   div(once neg(var x), const c)            => div(x, neg(c))   if floating(x)        [nan-payload]
    neg-div-constant:   neg(once div(var x, const c))            => div(x, neg(c))   if floating(x)        [nan-payload]
    neg-odd:            neg(y := elementwise_unary(neg(x)))      => elementwise_unary(x)   if odd(y)       [nan-payload]
    even-neg:           elementwise_unary(neg(x))                => elementwise_unary(x)   if even(root)   [nan-payload]

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
    add-constants:      add(once add(var x, const a), const b)   => add(x, add(a, b))                      [range]
    add-sub-constants:  add(once sub(var x, const a), const b)   => add(x, sub(b, a))                      [range]
    sub-add-constants:  sub(once add(var x, const a), const b)   => add(x, sub(a, b))                      [range]
    sub-sub-constants:  sub(once sub(var x, const a), const b)   => sub(x, add(a, b))                      [range]
    add-constant-sub:   add(once sub(const a, var x), const b)   => sub(add(a, b), x)                      [range]
    sub-constant-sub:   sub(once sub(const a, var x), const b)   => sub(sub(a, b), x)                      [range]
    constant-sub-add:   sub(const a, once add(var x, const b))   => sub(sub(a, b), x)                      [range]
    constant-sub-sub:   sub(const a, once sub(var x, const b))   => sub(add(a, b), x)                      [range]
    constant-sub-from:  sub(const a, once sub(const b, var x))   => add(x, sub(a, b))                      [range]
    mul-constants:      mul(once mul(var x, const a), const b)   => mul(x, mul(a, b))                      [range]
    maximum-constants:  maximum(once maximum(var x, const a), const b) => maximum(x, maximum(a, b))        [nan-payload]
    minimum-constants:  minimum(once minimum(var x, const a), const b) => minimum(x, minimum(a, b))        [nan-payload]

    maximum-minimum:    maximum(minimum(x, y), x)                => x                                      [range]
    minimum-maximum:    minimum(maximum(x, y), x)                => x                                      [range]
    maximum-lowest:     maximum(x, const c)                      => x   if lowest(c)
    minimum-highest:    minimum(x, const c)                      => x   if highest(c)
    maximum-highest:    maximum(x, const c)                      => c   if highest(c)                      [range]
    minimum-lowest:     minimum(x, const c)                      => c   if lowest(c)                       [range]
    maximum-exp:        maximum(y := exp(_), 0)                  => y                                      [nan-payload]
    maximum-abs:        maximum(y := abs(x), 0)                  => y           if floating(x)             [nan-payload]
    abs-maximum:        abs(y := maximum(_, 0))                  => y                                      [nan-payload]
    maximum-in-range:   maximum(y := minimum(maximum(_, const a), const b), const a) => y   if ordered(a, b) [nan-payload]
    minimum-in-range:   minimum(y := maximum(minimum(_, const b), const a), const b) => y   if ordered(a, b) [nan-payload]
    maximum-of-clamp:   maximum(y := clamp(_, const a, const b), const a) => y   if ordered(a, b)          [nan-payload]
    minimum-of-clamp:   minimum(y := clamp(_, _, b), b)          => y                                      [nan-payload]

    clamp-at-lower:     clamp(x, x, y)                           => minimum(x, y)
    clamp-at-upper:     clamp(x, _, x)                           => x                                      [range]
    clamp-to-one:       clamp(_, y, y)                           => y                                      [range]
    clamp-again:        clamp(c := clamp(_, a, b), a, b)         => c                                      [nan-payload]
    clamp-below:        clamp(x, a, const b)                     => maximum(x, a)   if highest(b)
    clamp-above:        clamp(x, const a, b)                     => minimum(x, b)   if lowest(a)

    maximum-neg:        maximum(x, neg(x))                       => abs(x)                                 [nan-payload]

    # Powers are captured as exp(p * log(x)), square roots as reciprocal(rsqrt(x)).
    square:             exp(mul(log(x), 2))                      => mul(x, x)   if floating(x)             [range]
    square-root:        exp(once mul(log(x), 0.5))               => reciprocal(rsqrt(x))                   [range]
    one-over-root:      exp(mul(log(x), -0.5))                   => rsqrt(x)                               [range]
    one-over:           exp(neg(log(x)))                         => reciprocal(x)                          [range]
    root-squared:       mul(reciprocal(rsqrt(x)), reciprocal(rsqrt(x)))  => x                              [range]
    reciprocal-twice:   reciprocal(reciprocal(x))                => x                                      [range]
    reciprocal-div:     reciprocal(div(x, y))                    => div(y, x)                              [range]
    mul-reciprocal:     mul(x, reciprocal(var y))                => div(x, y)                              [range]
    div-reciprocal:     div(x, reciprocal(y))                    => mul(x, y)                              [range]
    log-exp:            log(exp(x))                              => x           if floating(x)             [range]
    exp-log:            exp(log(x))                              => x           if floating(x)             [range]
    mul-exp:            mul(once exp(x), once exp(y))            => exp(add(x, y))                         [range]
    div-exp:            div(once exp(x), once exp(y))            => exp(sub(x, y))                         [range]
    add-log:            add(once log(x), once log(y))            => log(mul(x, y))                         [range]
    sub-log:            sub(once log(x), once log(y))            => log(div(x, y))                         [range]
    mul-rsqrt:          mul(rsqrt(x), rsqrt(x))                  => reciprocal(x)                          [range]
    div-div:            div(once div(x, y), var z)               => div(x, mul(y, z))   if floating(x)     [range]
    div-by-div:         div(x, once div(y, z))                   => div(mul(x, z), y)   if floating(x)     [range]
    """

ALGEBRA = rules(RULES, DIALECT, HELPERS, splat)
