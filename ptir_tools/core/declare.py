"""The op declaration: one decorated function declares everything about an op.

The positional parameters are the operand groups, the keyword-only ones the attributes, the docstring the manual, the body
the meaning in NumPy, `infer` the type rule with its constraints. Parameter annotations are read as text:

* a positional parameter is one operand; annotated `Many` (or written `*xs`) it is any number of them, `Maybe` one or none;
* a keyword-only parameter annotated `Region` is a region (in the body: a callable), `Context` the evaluation context and
  `Result` the declared result type or types. Those two are for bodies alone. All other keyword-only parameters are attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ptir_tools.core.ir import (
    MANY,
    MAYBE,
    ONE,
    REQUIRED,
    SEGMENTS,
    Algebra,
    Asked,
    Asks,
    Attr,
    Attribute,
    Body,
    Branch,
    Group,
    Infer,
    InPlace,
    Kernel,
    Labels,
    Loop,
    Need,
    Op,
    OpDef,
    Operand,
    ShapeOf,
    Trait,
    Value,
    View,
)  # fmt: skip
from ptir_tools.core.typed import Any, TypeVar
from ptir_tools.core.types import Dim, Shape

# Annotations of operand groups; see the module's docstring.
B = TypeVar("B", bound=Body)
Many = tuple[Any, ...]
Maybe = Any

CO_VARARGS = 4  # as inspect.CO_VARARGS
OPS: dict[str, OpDef] = {}
NO_LAWS = Algebra()
ASKS_NOTHING = Asks()
_BODY_ONLY = ("Context", "Result")


def op(
    name: str,
    *,
    infer: Infer,
    traits: Trait = Trait.NONE,
    check: Callable[[Op], None] | None = None,
    fold: Callable[[Op], Operand | None] | None = None,
    safe: Callable[[Op, Sequence[Any]], bool] | None = None,
    fails: Callable[[Op], bool] | None = None,
    solve: Callable[..., Mapping[str, Dim]] | None = None,
    generate: Callable[..., object] | None = None,
    family: str = "",
    implemented: bool = True,
    error: Callable[..., object] | None = None,
    algebra: Algebra = NO_LAWS,
    cost: Callable[[Op], object] | None = None,
    kernel: Kernel | None = None,
    inplace: InPlace | None = None,
    view: View | None = None,
    asks: Asks = ASKS_NOTHING,
    control: Loop | Branch | None = None,
    factors: Callable[[Op], tuple[list[Labels], Labels]] | None = None,
    own: object = None,
    signature: tuple[Body, ...] = (),
) -> Callable[[B], B]:
    """Declare the op `name` (with its dialect: `ptir.add`); see the module's docstring for how the function is read.

    What the docstring of `infer` says after its first paragraph, the codes with which it refuses operands, is in the manual, too.
    `check` sees the whole op (for rules that need more than types); `fold` may name an operand that equals the result;
    `safe` tells whether the op may be computed on these constants before it runs (without it: on any); `fails` whether it may
    fail when it runs, on some values of its operands (without it: never; regions may, if ops in them do);
    `solve` gives the symbols of the attributes that operand types determine (a reshape to `?N`); `generate` drafts a
    random one where operands and attributes must fit each other (`core.generate`); `family` groups ops that are one kind in
    a serialization or a pattern root; `implemented=False` says that the body is still empty; `error` is the error rule of
    `core.errors`, which follows from the traits for elementwise ops and movement.

    The rest are facts, records of `core.ir`. A fold and an error rule may follow from the laws of its `algebra`. `kernel` is what
    it is in a fused kernel, `inplace` how NumPy computes it into an array, `view` how it looks at its operand. `asks` is what it
    asks of its operands, `control` which regions it runs. `cost` counts its arithmetic (`core.costs`), `factors` which axes are
    sharded together (`core.factors`). `own` is a record of facts for the op's dialect. `signature` names functions that together
    have the parameters, where the declared one takes them as a whole.
    """

    def declare(fn: B) -> B:
        OPS[name] = OpDef(
            name=name,
            infer=infer,
            body=fn,
            traits=traits,
            doc=_manual(fn, infer),
            check=check,
            fold=fold or (_fold_of(name, algebra) if fn.__code__.co_argcount == 1 else None),
            safe=safe,
            fails=fails,
            solve=solve,
            generate=generate,
            family=family or name.partition(".")[2],
            implemented=implemented,
            error=error,
            algebra=algebra,
            cost=cost,
            kernel=kernel,
            inplace=inplace,
            view=view,
            asks=asks,
            control=control,
            factors=factors,
            own=own,
            **_schema(*(signature or (fn,))),
        )
        return fn

    return declare


def _manual(fn: Body, infer: Infer) -> str:
    """The docstring of the declaration, and the codes of its type rule."""
    doc, refused = fn.__doc__ or "", (infer.__doc__ or "").partition("\n\n")[2]
    return f"{doc.rstrip()}\n{refused}" if refused and "\n" in doc else f"{doc}\n\n{refused}" if refused else doc


def _fold_of(name: str, algebra: Algebra) -> Callable[[Op], Operand | None] | None:
    """The fold implied by the laws of the unary op `name`; None when there is none."""
    short = name.partition(".")[2]

    def inner(op: Op) -> Op | None:
        x = op.operands[0]
        output = x.op if isinstance(x, Value) else None
        return output if output is not None and output.defn is op.defn and output.attrs == op.attrs else None

    def undone(op: Op) -> Operand | None:
        result = inner(op)
        return None if result is None else result.operands[0]

    def done(op: Op) -> Operand | None:
        return None if inner(op) is None else op.operands[0]

    if algebra.involution:
        undone.__doc__ = f"`y`, when `x` is `{short}(y)`."
        return undone
    if algebra.idempotent:
        done.__doc__ = f"`x`, when it is made by `{short}`."
        return done
    return None


def _schema(*parts: Body) -> dict[str, Attribute]:
    """The fields of `OpDef` for the signatures of `parts` together, read from their code, because importing `inspect` would
    slow every start."""
    groups: list[Group] = []
    kinds: dict[str, str] = {}
    defaults: dict[str, Attribute] = {}
    star = False
    for fn in parts:
        code, notes = fn.__code__, fn.__annotations__
        if not all(isinstance(note, str) for note in notes.values()):
            raise TypeError(f"annotations of {fn.__qualname__} are not text: its file needs `from __future__ import annotations`")
        names, named = code.co_varnames, code.co_argcount + code.co_kwonlyargcount
        groups += [Group(p, {"Many": MANY, "Maybe": MAYBE}.get(notes.get(p, ""), ONE)) for p in names[: code.co_argcount]]
        if star := bool(code.co_flags & CO_VARARGS):
            groups.append(Group(names[named], MANY))
        kinds |= {k: notes.get(k, "") for k in names[code.co_argcount : named]}
        defaults |= fn.__kwdefaults__ or {}
    attrs = [Attr(k, t, defaults.get(k, REQUIRED)) for k, t in kinds.items() if t not in ("Region", *_BODY_ONLY)]
    if sum(g.kind != ONE for g in groups) > 1:
        attrs.append(Attr(SEGMENTS, "tuple[int, ...]", REQUIRED))
    return {
        "groups": tuple(groups),
        "star": star,
        "attrs": tuple(attrs),
        "regions": tuple(k for k, t in kinds.items() if t == "Region"),
        "wants": {k: t for k, t in kinds.items() if t in _BODY_ONLY},
    }


def always(op: Op) -> bool:
    """For `fails`: the op may fail on some operand values."""
    return True


def indices(operand: int, bounds: Callable[[Op, Shape], Iterable[Dim]], of: int = 0) -> Asks:
    """The operand with that number is an index below `bounds(op, shape)`, where `shape` is that of the operand `of`."""

    def own(op: Op, shape_of: ShapeOf) -> Iterator[tuple[Operand, Need]]:
        yield op.operands[operand], Need(tuple(n if isinstance(n, int) else 1 for n in bounds(op, shape_of(op.operands[of]))))

    return Asks(own)


def divisor(operand: int) -> Asks:
    """The operand with that number is a divisor."""
    return Asks(lambda op, shape_of: [(op.operands[operand], Need(nonzero=True))])


def same(op: Op, need: Need) -> Asked:
    """Element i of the result is element i of the first operand, converted."""
    return [(op.operands[0], need)]


def moved(op: Op, need: Need) -> Asked:
    """The result has elements of the first operand, at other indices."""
    return [(op.operands[0], need.loosely())]


def signed(op: Op, need: Need) -> Asked:
    """The result is 0 if the first operand is."""
    return [(op.operands[0], Need(nonzero=need.nonzero))]
