"""What is installed is complete: sdist and wheel are built and used away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of a clean copy of the checkout, and the wheel built from that sdist."""
    out, copy = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("copy")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    ran = subprocess.run(command, capture_output=True, text=True)
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


def test_nothing_leaks_to_the_top_level(wheel: zipfile.ZipFile) -> None:
    top = {n.split("/")[0] for n in wheel.namelist()}
    assert {n for n in top if not n.endswith(".dist-info")} == {"ptir_tools"}


def test_the_sdist_holds_what_a_build_needs(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    needed = {"setup.py", "pyproject.toml", "LICENSE", "README.md", "grammars/ptir.lark", "ptir_tools/native/module.c"}
    headers = {str(p.relative_to(ROOT)) for p in (ROOT / "ptir_tools" / "native").glob("*.h")}
    assert not (needed | headers) - names


def test_the_wheel_works_away_from_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    program = tmp_path / "p.ptir"
    program.write_bytes((ROOT / "testdata" / "verify" / "ok.ptir").read_bytes())
    # -P and an explicit path: neither the working directory nor the editable installation is seen.
    door = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); from ptir_tools.cli import main, __file__; "

    def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": ""}
        command = [sys.executable, "-P", "-c", door + code, *args]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)

    assert python("print(__file__)").stdout.startswith(str(tmp_path))
    assert python("sys.exit(main())", "verify", str(program)).returncode == 0
    ran = python("sys.exit(main())", "opt", str(program))
    assert ran.returncode == 0 and "neg" in ran.stdout, ran.stderr
    ran = python("sys.exit(main())", "run", str(program), "--input", "x=2")
    assert ran.returncode == 0 and "-2." in ran.stdout, ran.stderr


def test_without_a_compiler_everything_but_native_is_there(tmp_path: Path) -> None:
    code = "from setuptools import Distribution; import runpy; runpy.run_path('setup.py', run_name='__main__')"
    env = {**os.environ, "CC": "/bin/false", "CXX": "/bin/false"}
    out = tmp_path / "lib"
    command = [sys.executable, "-c", code, "-q", "build_ext", "--build-lib", str(out), "--build-temp", str(tmp_path / "temp")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert not list(out.rglob("_native*"))
