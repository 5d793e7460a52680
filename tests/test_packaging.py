"""What is installed is complete: sdist and wheel are built and used away from the checkout."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the checkout, without its tests."""
    folder = tmp_path_factory.mktemp("copy")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "testdata/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / "tests").mkdir()
    (folder / "tests" / "test_left_out.py").write_text("")
    return folder


@pytest.fixture(scope="module")
def built(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of the copy, and the wheel built from it. C that was compiled before is not compiled again."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    env = {**os.environ, "PTIR_OBJECTS": str(ROOT / "build" / "objects"), "PYTHONHASHSEED": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


def _sources() -> list[str]:
    """Every file of the packages, by its place in an installation."""
    rooms = {"ptir_tools": "ptir_tools", "grammars": "ptir_tools/grammars", "passes": "ptir_tools/passes"}
    found = []
    for folder, place in rooms.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".lark", ".pyi", ".typed") and "__pycache__" not in path.parts:
                found.append(f"{place}/{path.relative_to(ROOT / folder)}")
    return found


def _committed() -> set[str]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {n if n.startswith("ptir_tools/") else f"ptir_tools/{n}" for n in names}


def test_the_wheel_holds_every_file(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert not [f for f in _sources() if f in _committed() and f not in names]
    assert [n for n in names if n.endswith(".tables")], "the parse tables are made by the build"


def _build_py(copy: Path, out: Path, seed: str) -> subprocess.CompletedProcess[str]:
    """Make the Python part of a wheel, with this seed of hashes."""
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(out)]
    return subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)


def test_what_a_build_makes_does_not_depend_on_the_seed_of_hashes(wheel: zipfile.ZipFile, copy: Path, tmp_path: Path) -> None:
    ran = _build_py(copy, tmp_path / "lib", "2")
    assert ran.returncode == 0, ran.stderr[-3000:]
    names = {str(path.relative_to(tmp_path / "lib")) for path in (tmp_path / "lib").rglob("*") if path.is_file()}
    assert names == {n for n in wheel.namelist() if ".dist-info/" not in n and "/_native." not in n}
    assert not [name for name in names if wheel.read(name) != (tmp_path / "lib" / name).read_bytes()]


@pytest.mark.parametrize(
    ("file", "fault"),
    [("grammars/json.lark", "\nvalue: NOTHING\n"), ("ptir_tools/dialects/tiny/rewrites.py", "\nraise RuntimeError\n")],
)
def test_a_table_that_cannot_be_made_fails_the_build(copy: Path, tmp_path: Path, file: str, fault: str) -> None:
    sound = (copy / file).read_bytes()
    try:
        (copy / file).write_bytes(sound + fault.encode())
        ran = _build_py(copy, tmp_path / "lib", "0")
    finally:
        (copy / file).write_bytes(sound)
    assert ran.returncode != 0 and not (tmp_path / "lib").exists()


def test_licence_and_notice_are_in_both_archives(built: Path, wheel: zipfile.ZipFile) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    held = {n.rpartition("/")[2] for n in wheel.namelist() if ".dist-info/licenses/" in n}
    assert held == {"LICENSE", "NOTICE"} and held <= names


def test_who_made_it_and_for_whom_is_said(wheel: zipfile.ZipFile) -> None:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    said = email.message_from_bytes(wheel.read(name))
    assert said["Author"] and said["License-Expression"] == "Apache-2.0"
    assert len(said.get_all("Project-URL", [])) == 4
    known = [c.rpartition(" ")[2] for c in said.get_all("Classifier", []) if c.startswith("Programming Language :: Python :: 3.")]
    assert known and f"It needs Python {known[0]} to {known[-1]}." in (ROOT / "README.md").read_text("utf-8")
    assert said["Requires-Python"] == f">={known[0]}"


def test_one_wheel_serves_every_python(wheel: zipfile.ZipFile) -> None:
    """The stable ABI of the oldest Python: in the wheel's name and in that of the extension, where it was compiled."""
    assert wheel.filename is not None and "-cp311-abi3-" in Path(wheel.filename).name
    assert all(".abi3." in n or n.endswith(".pyd") for n in wheel.namelist() if "/_native." in n)
    made = [n for n in wheel.namelist() if "/compiled/" in n or n.endswith(".tables")]
    assert len(made) > 10 and not [n for n in made if "cpython" in n], "rule lists and tables are the same for every version"


def test_the_recipe_of_the_wheels_names_what_is_there() -> None:
    """cibuildwheel runs elsewhere; here what it would run after a build is run, and its choices are held to the project's."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    recipe = project["tool"]["cibuildwheel"]
    oldest = "cp" + project["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert len(recipe["build"]) == 4 and all(name.startswith(f"{oldest}-") for name in recipe["build"])
    for line in recipe["test-command"]:
        words = line.format(package=ROOT).split()
        assert words[0] == "ptir"
        ran = subprocess.run([sys.executable, "-m", "ptir_tools", *words[1:]], cwd=ROOT, capture_output=True, text=True)
        assert ran.returncode == 0 and ran.stdout, ran.stderr


def test_nothing_leaks_to_the_top_level(wheel: zipfile.ZipFile) -> None:
    top = {n.split("/")[0] for n in wheel.namelist()}
    assert {n for n in top if not n.endswith(".dist-info")} == {"ptir_tools"}


def test_the_sdist_holds_what_a_build_needs(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    needed = {"setup.py", "pyproject.toml", "LICENSE", "README.md", "grammars/ptir.lark", "ptir_tools/native/module.c"}
    headers = {str(p.relative_to(ROOT)) for p in (ROOT / "ptir_tools" / "native").glob("*.h")}
    assert not (needed | headers) - names
    assert not [n for n in names if n.startswith("tests/")], "half of the tests: without testdata they cannot run"


DOOR = """
import sys
sys.path.insert(0, sys.argv.pop(1))
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
from ptir_tools import cli
assert cli.__file__.startswith(sys.path[0])
sys.exit(cli.main())
"""


def installed(site: Path, command: str, *args: str) -> subprocess.CompletedProcess[str]:
    """`ptir COMMAND ok.ptir ARGS` from `site`; neither the checkout nor an installation is seen."""
    (site / "ok.ptir").write_bytes((ROOT / "testdata" / "verify" / "ok.ptir").read_bytes())
    line = [sys.executable, "-P", "-c", DOOR, str(site), command, "ok.ptir", *args]
    return subprocess.run(line, capture_output=True, text=True, cwd=site, env={**os.environ, "PYTHONPATH": ""})


def test_the_wheel_works_away_from_the_checkout_with_and_without_the_extension(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    assert installed(tmp_path, "verify").returncode == 0
    ran = installed(tmp_path, "opt")
    assert ran.returncode == 0 and "neg" in ran.stdout, ran.stderr
    ran = installed(tmp_path, "run", "--input", "x=2", "--engine", "native")
    assert ran.returncode == 0 and "-2." in ran.stdout, ran.stderr

    (extension,) = (tmp_path / "ptir_tools").glob("_native*")
    extension.unlink()
    ran = installed(tmp_path, "run", "--input", "x=2")
    assert ran.returncode == 0 and "-2." in ran.stdout, ran.stderr
    ran = installed(tmp_path, "plan")
    assert ran.returncode == 0 and "ratio 1.0" in ran.stdout, ran.stderr
    assert installed(tmp_path, "run", "--input", "x=2", "--engine", "native").returncode == 2


def test_without_a_compiler_everything_but_native_is_there(tmp_path: Path) -> None:
    code = "from setuptools import Distribution; import runpy; runpy.run_path('setup.py', run_name='__main__')"
    env = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false"}
    out = tmp_path / "lib"
    command = [sys.executable, "-c", code, "-q", "build_ext", "--build-lib", str(out), "--build-temp", str(tmp_path / "temp")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert not list(out.rglob("_native*"))
