"""That a fault is in place where it is judged, and that the tests that reach it are known."""

from __future__ import annotations

import builtins
import gc
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.mutate import rooms
from tests.mutate import tests as runs
from tests.mutate.faults import of_c, of_python

SOURCE = '''"""Words."""
LIMIT = 3
double = lambda x: x * 2


def sign(x):
    """Of a number."""
    if x < 0:
        return -1
    for i in range(x):
        if i > LIMIT:
            return double(i)
    return 1


def adder(n):
    return lambda x: x + n
'''


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    (made := tmp_path / "subject.py").write_text(SOURCE)
    return made


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("subject", path)
    assert spec is not None and spec.loader is not None
    module = ModuleType("subject")
    module.__file__ = str(path)
    spec.loader.exec_module(module)
    return module


def test_marks_tell_which_blocks_are_reached(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, reached, names = runs.Marks(path), set[str](), dict[str, Any]()
    monkeypatch.setattr(builtins, "__mark__", reached.add, raising=False)
    exec(compile(marks.tree, str(path), "exec"), names)
    assert not reached and not marks.at(2) and names["sign"].__doc__ == "Of a number."
    assert names["sign"](2) == 1
    assert [bool(reached & marks.at(line)) for line in (3, 8, 9, 10, 11, 12, 13, 17)] == [
        False, True, False, True, True, False, True, False,
    ]  # fmt: skip
    assert names["sign"](9) == 8 and reached & marks.at(3) and reached & marks.at(12)


@pytest.mark.parametrize("frozen", [False, True])
def test_functions_that_are_loaded_get_the_code_with_the_fault(path: Path, tmp_path: Path, frozen: bool) -> None:
    module = loaded(path)
    closure = module.adder(10)
    assert (module.sign(-5), module.sign(9), closure(1)) == (-1, 8, 11)
    (changed := tmp_path / "changed.py").write_text(
        SOURCE.replace("x < 0", "x > 0").replace("x * 2", "x * 3").replace("x + n", "x - n")
    )
    if frozen:
        gc.freeze()
    runs.put(str(path), str(changed))
    assert (module.sign(-5), module.sign(9), module.double(2), closure(1)) == (1, -1, 6, -9)


def test_only_tests_that_reach_a_fault_judge_it_the_quickest_first(path: Path) -> None:
    marks = runs.Marks(path)
    reach: runs.Reach = {
        "slow": (5.0, frozenset(marks.at(9))), "other": (0.1, frozenset(marks.at(17))), "quick": (1.0, frozenset(marks.at(9))),
        "unknown": (0.0, None), "too slow": (49.0, frozenset(marks.at(9))),
    }  # fmt: skip
    assert runs.selected(reach, path, marks.at(9)) == ["quick", "slow"]
    assert runs.selected(reach, path, set()) == ["other", "quick", "slow"]


def test_every_file_of_the_product_belongs_to_a_room() -> None:
    judged = rooms._judged()
    files = [
        p
        for folder in ("ptir_tools", "passes")
        for p in (rooms.ROOT / folder).rglob("*")
        if p.suffix in (".py", ".c", ".h", ".inl")
    ]
    files = [p for p in files if "compiled" not in p.parts and not (p.name == "__init__.py" and p.stat().st_size <= 400)]
    assert [str(p.relative_to(rooms.ROOT)) for p in files if p not in judged] == []
    for parts in rooms.ROOMS.values():
        for part in parts:
            assert part.files() and all((rooms.ROOT / name).exists() for name in runs.names(part)), part


MORE = """
def window(x, left, right, rows):
    if not rows:
        return None
    key = (left, right, x.shape)
    if left:
        a = 1
    elif right:
        a = 2
    for i in range(rows):
        a += x.shape[0] + x.shape[-1] + x.operands[0]
    match a:
        case 3:
            return left - right
        case _:
            return KEPT.get(key)
"""


def test_the_kinds_of_faults_that_a_maintainer_makes() -> None:
    made: dict[str, set[str]] = {}
    for fault in of_python(MORE.encode()):
        made.setdefault(fault.kind, set()).add(fault.text)
    assert made["dropped check"] == {"pass"} and "(range(rows - 1))" in made["tail of a loop"]
    assert {"False", "3 if False"} <= made["forgotten case"]
    assert {"((right, x.shape))", "((left, x.shape))", "((left, right))"} == made["stale key"]
    assert {"(x.shape[1])", "(x.shape[-2])"} == made["wrong axis"]
    assert {"left", "right", "(x.operands[1])"} <= made["crossed operands"]
    in_c = b"for (size_t i = 0; i < n; i++)\n    if (x)\n        return;\nswitch (k) {\ncase 1: f(left, right); break;\n}\n"
    assert {f.kind for f in of_c(in_c)} >= {"tail of a loop", "dropped check", "forgotten case", "crossed operands"}


def test_every_fault_is_a_program_and_changes_it(path: Path) -> None:
    before = path.read_bytes()
    made = [fault.put(before) for fault in of_python(before)]
    assert len(set(made)) == len(made) > 5 and before not in made
    for text in made:
        compile(text, "changed", "exec")
