"""MIND text: instructions made like ones before and instructions read one by one give the same program."""

import re
from random import Random

import pytest

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Literal, Op
from ptir_tools.core.source import Source
from ptir_tools.dialects.mind.text import format as text
from tests.mind.programs import SAMPLES

LINES = (
    "%{i} = Add (%{a}, %{b}) : tensor<f32[2, 2]>",
    "%{i} = BinOp (%{a}, %{b}) {{op=Mul}}",
    "%{i} = Relu (%0{a})",
    "%0{i} = Relu (%{a}) # a comment",
    "%n{i} = Transpose (%{a}) {{permutation=[1, 0]}} : tensor<f32[2, 2]>",
    "%{i} = Transpose (%n{a}) {{permutation=[1, 0], kept=3}}",
    "%{i} = Slice (%{a}) {{starts=[0, 0], ends=[0, 2], steps=[1, 1]}} : tensor<f32[0, 2]>",
    "%{i} = Relu (%{a}) : tensor<f32[0, 2]>",
    "%{i} = Input {{name=x{i}}} : tensor<f32[2, 2]>",
    "%{i} = ConstI64 {{value=3}}",
    "%{i} = %{a}",
    "%{i} = Relu (%{a}",
    "outputs: %{a}, %{b}",
)


def told(source: Source) -> tuple[object, ...]:
    """What reading says and makes of a text."""
    found = Diagnostics(source)
    program = text.read(source, found, Options())
    assert program is not None
    main = program.main
    numbers = {v: i for i, v in enumerate([*main.params, *(op.result for op in main.body)])}

    def op(x: Op) -> object:
        attrs = [a.key if isinstance(a, Literal) else a for a in x.attrs]
        return x.name, [numbers[v] for v in x.values()], attrs, x.result.name, x.result.type, x.loc

    return (
        found.items,
        [(p.name, p.type) for p in main.params],
        [*map(op, main.body)],
        main.attrs,
        [*map(numbers.get, main.results)],
    )


def same(source: str, patch: pytest.MonkeyPatch) -> None:
    made = Source("x", source)
    fast = told(made)
    patch.setattr(grammars, "lines", lambda _: re.compile("$^"))
    assert fast == told(made)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_samples_read_the_same(path, monkeypatch):
    same(path.read_text(), monkeypatch)


@pytest.mark.parametrize("seed", range(60))
def test_generated_text_reads_the_same(seed, monkeypatch):
    draw = Random(seed)
    rows = ["%0 = Input {name=x} : tensor<f32[2, 2]>"]
    for i in range(1, draw.randrange(2, 40)):
        line = draw.choice(LINES if i % 9 == 0 else LINES[:10])
        rows.append(line.format(i=max(0, i - draw.choice([0, 0, 0, 2])), a=draw.randrange(i), b=draw.randrange(i)))
    same("\n".join(rows), monkeypatch)


NUMBERS = ("1", "-2", "0.5", "-0.0", "1e3", "3.4028235677973366e38", "16777217.0000001", "1.00000005960464484", "1e-45", "07")


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("shape", [(20,), (4, 6), (2, 2, 5), (1, 3, 1, 6), (24, 1), (5, 0), (2, 2, 2, 2, 2, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_a_list_is_read_as_one_token_or_by_the_grammar(shape: tuple[int, ...], dtype: str, seed: int) -> None:
    """A comma before the last bracket keeps it from being one token. Some lists lack a row, or have a number that the dtype has
    not."""
    draw = Random(f"{shape}{seed}")
    chosen = NUMBERS[: 2 if dtype[0] == "i" and seed else None]

    def nested(extents: tuple[int, ...]) -> str:
        if not extents:
            return draw.choice(chosen)
        count = extents[0] - (draw.random() < 0.02)
        return f"[{', '.join(nested(extents[1:]) for _ in range(max(count, 0)))}]"

    value = nested(shape)
    made = [f"%0 = ConstTensor {{value={value[:-1]}{end}]}} : tensor<{dtype}[{', '.join(map(str, shape))}]>" for end in " ,"]
    (one, *same), (other, *as_other) = (told(Source("t", f"{line}\noutputs: %0\n")) for line in made)
    assert same == as_other
    assert [(d.code, d.message, d.at) for d in one] == [(d.code, d.message, d.at) for d in other]  # type: ignore[attr-defined]
