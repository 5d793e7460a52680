"""What Python shows of programs, plans and what is compiled."""

import ptir_tools as ptir


def test_what_is_shown_of_a_program_is_one_line_and_a_notebook_shows_its_text() -> None:
    program = ptir.read("func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = exp(%x) -> tensor<f32, 2>\n  return %y\n}\n")
    assert repr(program) == "<ptir program f: 1 functions, 0 regions, 1 ops>"
    assert repr(program.main) == "<function f: 1 ops>" and repr(program.main.body[0]) == "<ptir.exp %y>"
    assert repr(ptir.plan(program)) == "<plan: f 0 bytes>"
    assert repr(ptir.compile(program)) == f"<compiled {program!r}>"
    assert "%y = exp(%x) -&gt; tensor&lt;f32, 2&gt;" in program._repr_html_()
