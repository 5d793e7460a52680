"""The documents as a site: every page is in its menu, and mkdocs, where it is installed, finds no dead link."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ptir_tools as ptir
from tests.conftest import ROOT


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r"[\w-]+\.md", menu)) == sorted(
        ["api.md", "index.md", *(page.name for page in (ROOT / "docs").glob("*.md"))]
    )


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs-material and mkdocstrings-python are not installed (extra `docs`)")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    first = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert 'href="passes/"' in first and "fonts.googleapis" not in first
    api = (tmp_path / "site" / "api" / "index.html").read_text("utf-8")
    for found in (getattr(ptir, name) for name in ptir.__all__):  # each with its own words
        words = found.__doc__.partition("`")[0].partition("\n")[0].strip()
        assert f'id="{found.__module__}.{found.__qualname__}"' in api and words[:40] in api


def test_the_notice_names_every_package_that_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *(x for extra in project["optional-dependencies"].values() for x in extra)]
    names = {re.split(r"[<>=\[ ]", x)[0] for x in asked} - {project["name"]}
    assert not names - set(re.findall(r"[\w-]+", (ROOT / "NOTICE").read_text("utf-8")))
