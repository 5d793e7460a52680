"""`ptir fmt` of text PTIR: comments stay where they belong, the program stays the same, twice is once."""

import pytest
from hypothesis import given, settings

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.source import Source
from ptir_tools.dialects.ptir.text.fmt import format_text
from tests.ptir.test_text import EXAMPLE
from tests.ptir.texts import FUNCS, clean, mutated, read, write

MESSY = """\
// head


/* block
   comment */
func   f(x :Tensor<F32,  2 x ?"max">,%p:tensor<i1>)   ->(tensor<f32,2x3> ,tensor<f32>){ // open

  // own
  %y = add %x,%x ->tensor<f32,2x3>  // beside


  // two
  z=add(x , y)->tensor<f32,2x3>
  %q = reduce_sum axes[1 ,0] accum_dtype[F32] %z keepdims[ true ] // inner
       -> tensor<f32 ,2x3>
  %c = constant() value[dense<[1.0,2]>] -> tensor<f32,2>
  %t = custom_call(%x, dense<1.0>:tensor<f32>) target["a b"] attrs[{a=1,b=[1,2],c=[]:f64}] -> (tensor<f32>,tuple<tensor<f32,2>>)
  %u = neg(%t[0]) -> tensor<f32>
  return y,%t[0] ; // end

  // last
}

// tail"""

LAID_OUT = """\
// head

/* block
   comment */
func @f(%x: tensor<f32, 2x?"max">, %p: tensor<i1>) -> (tensor<f32, 2x3>, tensor<f32>) { // open

  // own
  %y = add(%x, %x) -> tensor<f32, 2x3> // beside

  // two
  %z = add(%x, %y) -> tensor<f32, 2x3>
  // inner
  %q = reduce_sum(%z) axes[1, 0] accum_dtype[f32] keepdims[true] -> tensor<f32, 2x3>
  %c = constant() value[dense<[1.0, 2]>] -> tensor<f32, 2>
  %t = custom_call(%x, dense<1.0> : tensor<f32>) target["a b"] attrs[{a = 1, b = [1, 2], c = [] : f64}] -> (tensor<f32>, \
tuple<tensor<f32, 2>>)
  %u = neg(%t[0]) -> tensor<f32>
  return %y, %t[0] // end

  // last
}

// tail
"""


def laid_out(text: str) -> str | None:
    source = Source("x", text)
    return format_text(source, Diagnostics(source))


def test_layout() -> None:
    assert laid_out(MESSY) == LAID_OUT
    assert laid_out(LAID_OUT) == LAID_OUT


@pytest.mark.parametrize("text", [EXAMPLE, *(p.read_text() for p in FUNCS)])
def test_what_is_printed_is_laid_out_and_the_program_stays(text: str) -> None:
    printed = write(clean(text))
    assert laid_out(printed) == printed
    after = laid_out(text)
    assert after is not None
    assert write(clean(after)) == printed


@settings(max_examples=80, deadline=None)
@given(mutated([MESSY, EXAMPLE, *(p.read_text() for p in FUNCS)]))
def test_layout_of_mutated_text(text: str) -> None:
    after = laid_out(text)
    if after is None:
        assert read(text)[1].errors
        return
    assert laid_out(after) == after
    if wrong := [d.code for d in read(text)[1]]:
        assert [d.code for d in read(after)[1]] == wrong
    else:
        assert write(clean(after)) == write(clean(text))


def test_what_cannot_be_read_is_reported() -> None:
    source = Source("x", "func @f( -> () { return }")
    diagnostics = Diagnostics(source)
    assert format_text(source, diagnostics) is None
    assert [d.code for d in diagnostics] == ["SyntaxError"]
    source = Source("x", "func @f(%x: tensor<{{t}}>) -> () { return }")
    diagnostics = Diagnostics(source)
    assert format_text(source, diagnostics) is None
    assert [d.code for d in diagnostics] == ["UnfilledPlaceholder"]
