"""Rules of comparisons, selection and conversion. The labels are described in `algebra`."""

from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.rewrite.rules import rules

RULES = """
    less-self:          compare_lt(x, x)                         => False
    greater-self:       compare_gt(x, x)                         => False
    equal-self:         compare_eq(x, x)                         => True        if number(x)
    unequal-self:       compare_ne(x, x)                         => False       if number(x)
    less-equal-self:    compare_le(x, x)                         => True        if number(x)
    greater-equal-self: compare_ge(x, x)                         => True        if number(x)
    equal-self-fast:    compare_eq(x, x)                         => True                                   [range]
    unequal-self-fast:  compare_ne(x, x)                         => False                                  [range]
    less-equal-self-fast:     compare_le(x, x)                   => True                                   [range]
    greater-equal-self-fast:  compare_ge(x, x)                   => True                                   [range]
    less-than-lowest:   compare_lt(_, const c)                   => False   if lowest(c)
    greater-than-highest: compare_gt(_, const c)                 => False   if highest(c)
    at-least-lowest:    compare_ge(_, const c)                   => True   if lowest(c)                    [range]
    at-most-highest:    compare_le(_, const c)                   => True   if highest(c)                   [range]
    less-right:         compare_lt(const c, var x)               => compare_gt(x, c)
    less-equal-right:   compare_le(const c, var x)               => compare_ge(x, c)
    greater-right:      compare_gt(const c, var x)               => compare_lt(x, c)
    greater-equal-right: compare_ge(const c, var x)              => compare_le(x, c)

    equal-difference:   compare_eq(once sub(x, y), 0)            => compare_eq(x, y)                       [range]
    unequal-difference: compare_ne(once sub(x, y), 0)            => compare_ne(x, y)                       [range]
    equal-shifted:      compare_eq(once add(var x, const b), const c) => compare_eq(x, sub(c, b))   if integer(x)
    unequal-shifted:    compare_ne(once add(var x, const b), const c) => compare_ne(x, sub(c, b))   if integer(x)
    equal-sub:          compare_eq(once sub(var x, const b), const c) => compare_eq(x, add(c, b))   if integer(x)
    unequal-sub:        compare_ne(once sub(var x, const b), const c) => compare_ne(x, add(c, b))   if integer(x)
    equal-sub-from:     compare_eq(once sub(const b, var x), const c) => compare_eq(x, sub(b, c))   if integer(x)
    unequal-sub-from:   compare_ne(once sub(const b, var x), const c) => compare_ne(x, sub(b, c))   if integer(x)
    compare-widened:    compare(cast(x, dtype=d), cast(y, dtype=d)) => compare(x, y)
                        if dtype(x) is dtype(y) and lossless(dtype(x), d)

    # `compare_eq(p, False)` is how PTIR says not.
    is-true:            compare_eq(p, True)                      => p
    is-not-false:       compare_ne(p, False)                     => p
    is-one:             compare_eq(cast(p, dtype=_), 1)          => p           if boolean(p)
    is-not-zero:        compare_ne(cast(p, dtype=_), 0)          => p           if boolean(p)
    is-positive:        compare_gt(cast(p, dtype=_), 0)          => p           if boolean(p)
    compare-narrower:   compare(once cast(var x, dtype=d), const c) => compare(x, cast(c, dtype=dtype(x)))
                        if lossless(dtype(x), d) and fits(c, dtype(x))
    not-not:            compare_eq(compare_eq(p, False), False)  => p
    not-not-true:       compare_ne(compare_ne(p, True), True)    => p
    equal-again:        compare_eq(compare_eq(p, q), q)          => p           if boolean(p)
    unequal-again:      compare_ne(compare_ne(p, q), q)          => p           if boolean(p)
    not-equal:          compare_eq(compare_eq(a, b), False) => compare_ne(a, b)
    not-unequal:        compare_eq(compare_ne(a, b), False) => compare_eq(a, b)
    not-less:           compare_eq(compare_lt(a, b), False) => compare_ge(a, b)   if number(a, b)
    not-less-equal:     compare_eq(compare_le(a, b), False) => compare_gt(a, b)   if number(a, b)
    not-greater:        compare_eq(compare_gt(a, b), False) => compare_le(a, b)   if number(a, b)
    not-greater-equal:  compare_eq(compare_ge(a, b), False) => compare_lt(a, b)   if number(a, b)

    select-negation:    select(p, (f := False), True)            => compare_eq(p, f)
    select-one:         select(p, 1, 0.0)                        => cast(p, dtype=dtype(root))
    select-one-zero:    select(p, 1, 0)                          => cast(p, dtype=dtype(root))             [zero-sign]
    select-not:         select(compare_eq(p, False), x, y)       => select(p, y, x)
    select-not-true:    select(compare_ne(p, True), x, y)        => select(p, y, x)
    and-again:          select(q, y := select(_, q, False), False)  => y
    or-again:           select(q, True, y := select(_, True, q)) => y
    and-not:            select(p, compare_eq(p, False), False)   => False
    or-not:             select(p, True, compare_eq(p, False))    => True
    select-true-arm:    select(p, select(p, x, _), y)            => select(p, x, y)
    select-false-arm:   select(p, x, select(p, _, y))            => select(p, x, y)
    select-equal:       select(compare_eq(x, y), x, y)           => y                                      [zero-sign]
    select-unequal:     select(compare_ne(x, y), x, y)           => x                                      [zero-sign]
    select-less:        select(compare_lt(x, y), x, y)           => minimum(x, y)                          [range]
    select-less-equal:  select(compare_le(x, y), x, y)           => minimum(x, y)                          [range]
    select-greater:     select(compare_gt(x, y), x, y)           => maximum(x, y)                          [range]
    select-greater-equal: select(compare_ge(x, y), x, y)         => maximum(x, y)                          [range]
    select-not-less:    select(compare_lt(x, y), y, x)           => maximum(x, y)                          [range]
    select-not-less-equal: select(compare_le(x, y), y, x)        => maximum(x, y)                          [range]
    select-not-greater: select(compare_gt(x, y), y, x)           => minimum(x, y)                          [range]
    select-not-greater-equal: select(compare_ge(x, y), y, x)     => minimum(x, y)                          [range]

    select-negative:    select(compare_lt(x, 0), neg(x), x)      => abs(x)                                 [nan-payload]
    select-not-positive:  select(compare_le(x, 0), neg(x), x)    => abs(x)                                 [nan-payload]
    select-positive:    select(compare_gt(x, 0), x, neg(x))      => abs(x)                                 [nan-payload]
    select-not-negative:  select(compare_ge(x, 0), x, neg(x))    => abs(x)                                 [nan-payload]

    cast-chain:         cast(cast(x, dtype=d), dtype=e)          => cast(x, dtype=e)
                        if lossless(dtype(x), d) and not (inexact(x) and inexact(root))
    cast-chain-inexact: cast(cast(x, dtype=d), dtype=e)          => cast(x, dtype=e)
                        if lossless(dtype(x), d) and inexact(x) and inexact(root)                          [nan-payload]
    cast-narrower:      cast(cast(x, dtype=d), dtype=e)          => cast(x, dtype=e)   if saturates_alike(d, e)
    """

LOGIC = rules(RULES, DIALECT, HELPERS, splat)
