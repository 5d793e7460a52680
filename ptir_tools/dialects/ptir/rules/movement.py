"""Rules of ops that rearrange: identities, chains, and their motion through elementwise ops and each other.

Movement goes down, toward the results, where that makes the elementwise op work on less or lets two movements meet; nothing here
makes a program longer.
"""

from ptir_tools.core.rules import rules
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.rules.helpers import HELPERS, splat

MOVEMENT = rules(
    """
    transpose-same:       transpose(x, perm=p)                       => x                         if is_identity(p)
    transpose-chain:      transpose(transpose(x, perm=p), perm=q)    => transpose(x, perm=compose(p, q))
    transpose-units:      transpose(x, perm=p)                       => reshape(x, new_shape=shape(root))
                          if moves_units(p, shape(x)) and static(x)
    reshape-same:         reshape(x, new_shape=_)                    => x                         if shape(x) == shape(root)
    reshape-explicit:     reshape(x, new_shape=s)                    => reshape(x, new_shape=shape(root))
                          if s != shape(root) and static(root)
    reshape-chain:        reshape(y := reshape(x, new_shape=_), new_shape=_)  => reshape(x, new_shape=shape(root))
                          if known(y, x)
    broadcast-same:       broadcast_to(x, result_shape=s)            => x                         if shape(x) == s
    broadcast-chain:      broadcast_to(broadcast_to(x, result_shape=_), result_shape=s)  => broadcast_to(x, result_shape=s)
    broadcast-units:      broadcast_to(x, result_shape=s)            => reshape(x, new_shape=s)   if adds_units(x, root)
                          and rank(x) > 0 and static(x)
    broadcast-of-reshape: broadcast_to(y := reshape(x, new_shape=_), result_shape=s)     => broadcast_to(x, result_shape=s)
                          if adds_units(x, y)
    slice-same:           slice(x, starts=_, sizes=s)                => x                         if shape(x) == s
    slice-chain:          slice(slice(x, starts=a, sizes=_), starts=b, sizes=s)  => slice(x, starts=sums(a, b), sizes=s)
                          if static(x)
    pad-same:             pad(x, low=a, high=b, interior=c, pad_value=_)  => x                    if zeros((*a, *b, *c))
    tile-once:            tile(x, repeats=r)                         => x                         if ones(r)
    tile-chain:           tile(tile(x, repeats=a), repeats=b)        => tile(x, repeats=products(a, b))
    tile-one:             tile(x, repeats=_)                         => broadcast_to(x, result_shape=shape(root))
                          if count(x) == 1

    # A tensor of equal elements stays one.
    transpose-of-scalar:  transpose(broadcast_to(x, result_shape=_), perm=_)  => broadcast_to(x, result_shape=shape(root))
                          if rank(x) == 0
    reshape-of-scalar:    reshape(broadcast_to(x, result_shape=_), new_shape=_)  => broadcast_to(x, result_shape=shape(root))
                          if rank(x) == 0 and static(root)
    slice-of-scalar:      slice(b := broadcast_to(x, result_shape=_), starts=_, sizes=s)  => broadcast_to(x, result_shape=s)
                          if rank(x) == 0 and static(b)

    # Compute, then repeat.
    unary-of-broadcast:   elementwise_unary(b := broadcast_to(x, result_shape=s))
                          => broadcast_to(elementwise_unary(x), result_shape=s)                   if alone(rw, b, root)
    cast-of-broadcast:    cast(b := broadcast_to(x, result_shape=s), dtype=d)
                          => broadcast_to(cast(x, dtype=d), result_shape=s)                       if alone(rw, b, root)
    binary-of-broadcasts: elementwise_binary(b := broadcast_to(x, result_shape=s), c := broadcast_to(y, result_shape=_))
                          => broadcast_to(elementwise_binary(x, y), result_shape=s)
                          if shape(x) == shape(y) and alone(rw, b, root) and alone(rw, c, root) and total(root)
    compare-of-broadcasts: compare(b := broadcast_to(x, result_shape=s), c := broadcast_to(y, result_shape=_))
                          => broadcast_to(compare(x, y), result_shape=s)
                          if shape(x) == shape(y) and alone(rw, b, root) and alone(rw, c, root)

    # One movement for two.
    binary-of-transposes: elementwise_binary(b := transpose(x, perm=p), c := transpose(y, perm=p))
                          => transpose(elementwise_binary(x, y), perm=p)    if alone(rw, b, root) and alone(rw, c, root)
    binary-of-reshapes:   elementwise_binary(b := reshape(x, new_shape=_), c := reshape(y, new_shape=_))
                          => reshape(elementwise_binary(x, y), new_shape=shape(root))
                          if shape(x) == shape(y) and static(root, x) and alone(rw, b, root) and alone(rw, c, root)

    # Movements meet across an elementwise op.
    transpose-meets:      transpose(u := elementwise_unary(t := transpose(x, perm=p)), perm=q)
                          => transpose(elementwise_unary(x), perm=compose(p, q))  if alone(rw, u, root) and alone(rw, t, u.op)
    reshape-meets:        reshape(u := elementwise_unary(t := reshape(x, new_shape=_)), new_shape=_)
                          => reshape(elementwise_unary(x), new_shape=shape(root))
                          if static(root, x) and alone(rw, u, root) and alone(rw, t, u.op)
    transpose-meets-cast: transpose(u := cast(t := transpose(x, perm=p), dtype=d), perm=q)
                          => transpose(cast(x, dtype=d), perm=compose(p, q))      if alone(rw, u, root) and alone(rw, t, u.op)
    reshape-meets-cast:   reshape(u := cast(t := reshape(x, new_shape=_), dtype=d), new_shape=_)
                          => reshape(cast(x, dtype=d), new_shape=shape(root))
                          if static(root, x) and alone(rw, u, root) and alone(rw, t, u.op)
    """,
    DIALECT,
    HELPERS,
    splat,
)
