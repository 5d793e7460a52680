"""Branches and loops for functions of NumPy. On arrays they compute; while a function is traced they become ops with regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from ptir_tools.bridges.numpy_array import Traced, astype, of_value, results_of, traced_in
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import cast
from ptir_tools.dialects.ptir.builder.build import Build, Tensor

Body = Callable[..., object]


def cond(flag: object, arguments: Sequence[object], on_true: Body, on_false: Body) -> object:
    """`on_true(*arguments)` if `flag` holds, else `on_false(*arguments)`.

    While a function is traced, both are called once. They see only their arguments, and give results of the same dtypes and
    shapes; else UsageError.
    """
    block = traced_in(flag, *arguments)
    if block is None:
        return (on_true if np.asarray(flag).item() else on_false)(*_arrays(arguments))
    if not arguments:
        raise UsageError("cond: a branch needs an argument: pass in what it computes with")
    given = [of_value(x, block).tensor for x in arguments]
    pred = astype(of_value(flag, block), np.dtype(np.bool_)).tensor
    first = _Region("cond", on_true)
    second = _Region("cond", on_false, like=first)
    return first.unpacked(block.cond(pred, given, first.build(), second.build()))


def while_(carry: Sequence[object], test: Body, body: Body) -> tuple[object, ...]:
    """`carry` after `carry = body(*carry)` for as long as `test(*carry)` holds.

    While a function is traced, `test` and `body` are called once. They see only the carry. Raises UsageError if `body` changes
    a dtype or a shape of it, when traced.
    """
    block = traced_in(*carry)
    if block is None:
        values = _arrays(carry)
        while np.asarray(test(*values)).item():
            values = results_of(body(*values))
        return values
    start = [of_value(x, block) for x in carry]

    def tested(*xs: Tensor) -> list[Tensor]:
        flag = of_value(test(*map(Traced, xs)), xs[0].block)
        if flag.ndim:
            raise UsageError(f"while_: `test` gives an array of shape {flag.shape} and not one truth value")
        return [astype(flag, np.dtype(np.bool_)).tensor, *xs]

    region = _Region("while_", body, carry=start)
    made = block.while_([x.tensor for x in start], tested, region.build())
    return results_of(region.unpacked(made))


def scan(carry: Sequence[object], inputs: Sequence[object], body: Body) -> tuple[object, ...]:
    """The last carry, then the stacked outputs, of a loop over the leading axis of `inputs`: `body(*carry, *slices)` gives the
    next carry, then outputs.

    While a function is traced, `body` is called once and sees only its arguments. Raises UsageError if it changes a dtype or a
    shape of the carry, when traced, or without inputs, or for inputs of different lengths.
    """
    lengths = {(*_shape(x), None)[0] for x in inputs}  # None: no axis
    if len(lengths) != 1 or None in lengths:
        raise UsageError("scan: the inputs need a leading axis, of one length for all")
    block = traced_in(*carry, *inputs)
    if block is None:
        return _scanned(carry, inputs, body)
    start = [of_value(x, block) for x in carry]
    region = _Region("scan", body, carry=start)
    made = block.scan([x.tensor for x in start], [of_value(x, block).tensor for x in inputs], region.build())
    return results_of(region.unpacked(made))


def _scanned(carry: Sequence[object], inputs: Sequence[object], body: Body) -> tuple[object, ...]:
    values, rows = _arrays(carry), list[tuple[object, ...]]()
    for slices in zip(*(cast("Sequence[object]", x) for x in inputs), strict=True):
        made = results_of(body(*values, *slices))
        values = made[: len(carry)]
        rows.append(made[len(carry) :])
    if not rows:
        raise UsageError("scan: the inputs are empty, so the outputs have no shape")
    return (*values, *(np.stack([np.asarray(x) for x in column]) for column in zip(*rows, strict=True)))


class _Region:
    """The function of a region, and what it gave when it was called with traced values."""

    def __init__(self, name: str, function: Body, carry: Sequence[Traced] = (), like: _Region | None = None) -> None:
        self.name, self.function, self.carry, self.like = name, function, carry, like
        self.made: tuple[Traced, ...] = ()
        self.alone = False  # it gave one value and no tuple

    def build(self) -> Build:
        """What makes the results of parameters of the region. These have the names of the function's parameters."""

        @wraps(self.function)
        def made(*xs: Tensor) -> list[Tensor]:
            found = self.function(*map(Traced, xs))
            self.alone = not isinstance(found, (tuple, list))
            self.made = tuple(of_value(x, xs[0].block) for x in results_of(found))
            self._check()
            return [x.tensor for x in self.made]

        return made

    def _check(self) -> None:
        made, wanted = self.made, len(self.carry)
        if len(made) < wanted or (self.name == "while_" and len(made) > wanted):
            raise UsageError(f"{self.name}: `body` gives {len(made)} values for a carry of {wanted}")
        for i, (before, after) in enumerate(zip(self.carry, made, strict=False)):
            if _shown(before) != _shown(after):
                raise UsageError(f"{self.name}: carry {i} is {_shown(before)}, and {_shown(after)} after `body`")
        if (first := self.like) is not None and [*map(_shown, first.made)] != [*map(_shown, made)]:
            ours, theirs = (", ".join(map(_shown, values)) for values in (first.made, made))
            raise UsageError(f"{self.name}: `on_true` gives {ours}, and `on_false` gives {theirs}")

    def unpacked(self, made: Tensor) -> object:
        """The results of the op, as the function gave its own."""
        if len(self.made) == 1:
            return Traced(made) if self.alone else (Traced(made),)
        return tuple(map(Traced, made))


def _shape(x: object) -> tuple[int, ...]:
    return x.shape if isinstance(x, Traced) else np.asarray(x).shape


def _shown(x: Traced) -> str:
    return f"{x.dtype}[{', '.join(map(str, x.shape))}]"


def _arrays(values: Sequence[object]) -> tuple[object, ...]:
    """Numbers of Python as arrays, whose dtypes are not weak: as they are when they are traced."""
    return tuple(map(np.asarray, values))
