"""Comments of a program that is translated stand by what their statement became."""

from pathlib import Path

import pytest

from tests.conftest import run_ptir

TINY = """{ // a graph
  "uops": [
    {"id":"x","uop":"INPUT","arg":{"tensor_id":"X // no comment","dtype":"fp32","shape":[3]}},   // the input
    /* one
     * two */
    {"id":"a","uop":"RELU","src":["x"]}, // absent below 0
    {"id":"b","uop":"NEG","src":["a"]}
    // the end
  ]
}
"""
PTIR = """// a graph
// the input
func @main(%X____no_comment: tensor<f32, 3>) -> tensor<f32, 3> {
  // one
  // two
  %a_0 = broadcast_to(dense<0.0> : tensor<f32>) result_shape[3] -> tensor<f32, 3>
  %a_1 = compare_gt(%X____no_comment, %a_0) -> tensor<i1, 3>
  %a = select(%a_1, %X____no_comment, %a_0) -> tensor<f32, 3>  // absent below 0
  %b = neg(%a) -> tensor<f32, 3>
  // the end
  return %b
}
"""
MIND = """# a graph
# the input
%X____no_comment = Input {name=X____no_comment} : tensor<f32[3]>
# one
# two
%a = Relu (%X____no_comment) : tensor<f32[3]>  # absent below 0
%b = Neg (%a) : tensor<f32[3]>
# the end
outputs: %b
"""


def translated(text: str, form: str, to: str, tmp_path: Path) -> str:
    path = tmp_path / "program"
    path.write_text(text, "utf-8")
    ran = run_ptir("translate", "--from", form, "--to", to, path)
    assert ran.status == 0, ran.err
    return ran.text


def test_from_tiny(tmp_path: Path) -> None:
    assert translated(TINY, "tiny", "ptir", tmp_path) == PTIR


def test_what_is_absorbed_leaves_its_comments_to_what_absorbs_it(tmp_path: Path) -> None:
    assert translated(PTIR, "ptir", "mind", tmp_path) == MIND


@pytest.mark.parametrize("to", ["tiny", "ptir-json", "ptir-dump", "mind-json"])
def test_what_has_no_comments_gets_none(to: str, tmp_path: Path) -> None:
    assert "absent" not in translated(MIND, "mind", to, tmp_path)


def test_there_and_back(tmp_path: Path) -> None:
    again = translated(translated(MIND, "mind", "ptir", tmp_path), "ptir", "mind", tmp_path)
    assert again == MIND
