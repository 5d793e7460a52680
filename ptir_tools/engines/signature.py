"""The signature of a program: names and types of its inputs and outputs (command-line contract: `ptir run`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Function, Region, operand_type, result_names
from ptir_tools.core.lazy import late, np
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc
from ptir_tools.core.symbols import mentioned, unify
from ptir_tools.core.types import NumericType, ShapedType, TupleType, Type

array_of = late("ptir_tools.bridges.tensors", "array_of")


@dataclass(slots=True, frozen=True)
class Port:
    """A named input or output. `type` is that of one leaf: a tuple is as many ports as it has leaves. `loc` is the place of the
    text that declares an input: the parameter's own, or the function's."""

    name: str
    type: Type
    loc: Loc = field(default=0, compare=False)
    spelled: Callable[[Type], str] = field(default=str, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The type as the program's dialect spells it."""
        return self.spelled(self.type)


def entry(program: Program, name: str | None = None) -> Function:
    """The function to run. Raises UsageError for an unknown name."""
    result = program.function(program.entry if name is None else name)
    if result is None:
        known = ", ".join(f.name for f in program.functions) or "none"
        raise UsageError(f"no function `{program.entry if name is None else name}` (there are: {known})")
    return result


def signature(program: Program, function: str | None = None) -> list[Port]:
    """The inputs of a function, in order; a parameter `p` of tuple type is `p.0`, `p.1`, …"""
    main = entry(program, function)
    names = main.attrs.get("input_names") or [p.name for p in main.params]
    places = main.attrs.get("input_locs", {})
    declared = zip(names, main.params, strict=True)
    text = program.dialect.type_text
    return [Port(n, t, places.get(name, main.loc), text) for name, p in declared for n, t in _leaves(name, p.type)]


def results(program: Program, function: str | None = None) -> list[Port]:
    """The outputs of a function, in order: the final contents of its memory parameters that are outputs, then its results.

    The name of a result is that of the returned value. A returned tuple `t` is flattened to `t.0`, `t.1`, …; an unnamed result
    is `result_K`; a repeated name gets `_1`, `_2`, ….
    """
    main = entry(program, function)
    written = program.dialect.outputs(main)
    names = [*(p.name for p in written), *result_names(main)]
    flat = [leaf for name, x in zip(names, (*written, *main.results), strict=True) for leaf in _leaves(name, operand_type(x))]
    used: set[str] = set()
    ports = []
    for name, t in flat:
        unique, n = name, 0
        while unique in used:
            n += 1
            unique = f"{name}_{n}"
        used.add(unique)
        ports.append(Port(unique, t))
    return ports


def _leaves(name: str, t: Type) -> Iterator[tuple[str, Type]]:
    if not isinstance(t, TupleType):
        yield name, t
        return
    for i, e in enumerate(t.elements):
        yield from _leaves(f"{name}.{i}", e)


def order(ports: Sequence[Port], inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
    """One array per port. Raises UsageError for a missing input (with its type), an unknown one, and a wrong dtype or rank."""
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(ports):
            raise UsageError(f"{len(inputs)} inputs given, the program takes {len(ports)}: {_listed(ports)}")
        inputs = {p.name: a for p, a in zip(ports, inputs, strict=True)}
    if len(inputs) == len(ports):
        try:
            given = [inputs[p.name] for p in ports]
        except KeyError:
            pass
        else:
            return [_fitting(p, _array(p, x)) for p, x in zip(ports, given, strict=True)]
    if missing := [p for p in ports if p.name not in inputs]:
        help = "give it with --input NAME=SPEC, or draw what is left with --random SEED"
        raise UsageError(f"no input for {_listed(missing)}", help)
    known = {p.name for p in ports}
    unknown = next(name for name in inputs if name not in known)
    raise UsageError(f"no parameter is called `{unknown}` (the inputs are: {_listed(ports)})")


def _listed(ports: Sequence[Port]) -> str:
    return ", ".join(f"`{p.name}`: {p.text}" for p in ports) or "none"


def _array(port: Port, given: object) -> Array:
    """`given` as an array. Raises UsageError with the message of its own package."""
    if isinstance(given, np.ndarray):
        return given
    try:
        made: Array = array_of(given)
    except Exception as error:  # of any package
        raise UsageError(f"input `{port.name}` is {port.text}, and NumPy cannot convert the value: {error}") from error
    return made


def _fitting(port: Port, array: Array) -> Array:
    """`array` itself, checked, or an aligned copy. If its dtype states a byte order, a view without it."""
    t = port.type
    if not isinstance(t, NumericType):
        raise UsageError(f"input `{port.name}` is {port.text}, which cannot be given")
    dtype = arrays.numpy_dtype(t.dtype)
    if array.dtype is not dtype and array.dtype != dtype:
        raise UsageError(f"input `{port.name}` is {port.text}, got an array of {array.dtype}")
    shape = t.extents
    if array.shape != shape:
        same = (d == n for d, n in zip(shape, array.shape, strict=False) if isinstance(d, int))
        if len(shape) != array.ndim or not all(same):
            raise UsageError(f"input `{port.name}` is {port.text}, got shape {list(array.shape)}")
    if array.dtype.byteorder in "<>":
        array = array.view(dtype)
    return array if array.flags.aligned else array.copy()


def bind_shapes(ports: Sequence[Port], shapes: Iterable[tuple[int, ...]], numbers: dict[str, int], code: str) -> None:
    """Add to `numbers` the symbols that the shapes of inputs determine.

    Raises Violation(code) when a symbol would need two values.
    """
    for p, shape in zip(ports, shapes, strict=True):
        if isinstance(p.type, ShapedType) and not isinstance(p.type, TupleType):
            unify(p.type, p.type.with_shape(shape), numbers, f"input `{p.name}`", code)


def given_extents(ports: Sequence[Port], numbers: Mapping[str, int], bound: Iterable[str] = ()) -> dict[str, Array]:
    """The inputs that are extents: indices with the name of a symbol. The symbol is in `numbers`, or in `bound`; then the
    inputs do not have it any more."""
    named = {*(s.name for p in ports for s in mentioned(p.type)), *bound} & numbers.keys()
    indices = [p for p in ports if isinstance(t := p.type, NumericType) and t.dtype is INDEX and not t.extents]
    return {p.name: np.array(numbers[p.name], arrays.numpy_dtype(INDEX)) for p in indices if p.name in named}


def reached(function: Function) -> list[Region]:
    """The function and every region that it runs, each once, callers first."""
    outputs: dict[Region, None] = {function: None}
    todo: list[Region] = [function]
    for block in todo:
        new = [r for op in block.body for r in op.regions if r not in outputs]
        outputs.update(dict.fromkeys(new))
        todo.extend(dict.fromkeys(new))
    return list(outputs)
