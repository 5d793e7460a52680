"""Rules of ops that rearrange: identities and chains. `motion` moves them past other ops."""

from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rewrites.helpers import HELPERS, splat
from ptir_tools.rewrite.rules import rules

RULES = """
    transpose-chain:      transpose(transpose(x, perm=p), perm=q)    => transpose(x, perm=compose(p, q))
    transpose-units:      transpose(x, perm=p)                       => reshape(x, new_shape=shape(root))
                          if keeps_row_major(p, shape(x)) and static(x)
    reshape-explicit:     reshape(x, new_shape=s)                    => reshape(x, new_shape=shape(root))
                          if s != shape(root) and static(root)
    reshape-chain:        reshape(reshape(x, new_shape=_), new_shape=_)  => reshape(x, new_shape=shape(root))
    broadcast-chain:      broadcast_to(broadcast_to(x, result_shape=_), result_shape=s)  => broadcast_to(x, result_shape=s)
    broadcast-units:      broadcast_to(x, result_shape=s)            => reshape(x, new_shape=s)   if adds_units(x, root)
                          and rank(x) > 0 and static(x)
    broadcast-of-reshape: broadcast_to(y := reshape(x, new_shape=_), result_shape=s)     => broadcast_to(x, result_shape=s)
                          if aligned(x, y) and rank(x) <= rank(root)
    reshape-of-broadcast: reshape(y := broadcast_to(x, result_shape=_), new_shape=_)
                          => broadcast_to(x, result_shape=shape(root))
                          if aligned(y, root) and rank(x) <= rank(root)
    slice-chain:          slice(slice(x, starts=a, sizes=_), starts=b, sizes=s)  => slice(x, starts=sums(a, b), sizes=s)
                          if static(x)
    tile-chain:           tile(tile(x, repeats=a), repeats=b)        => tile(x, repeats=products(a, b))
    tile-units:           tile(x, repeats=r)                         => broadcast_to(x, result_shape=shape(root))
                          if all(d == 1 or n == 1 for d, n in zip(shape(x), r))

    # A tensor of equal elements stays one.
    transpose-of-scalar:  transpose(broadcast_to(x, result_shape=_), perm=_)  => broadcast_to(x, result_shape=shape(root))
                          if rank(x) == 0
    reshape-of-repeats:   reshape(y := broadcast_to(x, result_shape=_), new_shape=_)  => broadcast_to(x, result_shape=shape(root))
                          if ends(y, x) and ends(root, x) and static(root)
    slice-of-scalar:      slice(b := broadcast_to(x, result_shape=_), starts=_, sizes=s)  => broadcast_to(x, result_shape=s)
                          if rank(x) == 0 and static(b)

    # Compute, then repeat. (`motion` does the same for more operands, and for transposes and reshapes.)
    unary-of-broadcast:   elementwise_unary(once broadcast_to(x, result_shape=s))
                          => broadcast_to(elementwise_unary(x), result_shape=s)
    cast-of-broadcast:    cast(once broadcast_to(x, result_shape=s), dtype=d) => broadcast_to(cast(x, dtype=d), result_shape=s)

    # Movements meet across an op on one operand, whoever else looks at the first.
    transpose-meets:      transpose(once elementwise_unary(transpose(x, perm=p)), perm=q)
                          => transpose(elementwise_unary(x), perm=compose(p, q))
    transpose-meets-cast: transpose(once cast(transpose(x, perm=p), dtype=d), perm=q)
                          => transpose(cast(x, dtype=d), perm=compose(p, q))
    transpose-meets-pad:  transpose(once pad(transpose(x, perm=p), low=a, high=b, interior=i, pad_value=v), perm=q)
                          => transpose(pad(x, low=undo(p, a), high=undo(p, b), interior=undo(p, i), pad_value=v),
                          perm=compose(p, q))
    reshape-meets:        reshape(once elementwise_unary(reshape(x, new_shape=_)), new_shape=_)
                          => reshape(elementwise_unary(x), new_shape=shape(root))   if static(root, x)
    reshape-meets-cast:   reshape(once cast(reshape(x, new_shape=_), dtype=d), new_shape=_)
                          => reshape(cast(x, dtype=d), new_shape=shape(root))   if static(root, x)
    """

MOVEMENT = rules(RULES, DIALECT, HELPERS, splat)
