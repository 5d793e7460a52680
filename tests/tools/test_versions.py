"""What `ptir --version -v` shows."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ptir_tools.tools.versions import head


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_the_commit_of_a_clone(tmp_path: Path) -> None:
    """That of a branch, also of a packed one, and one that is checked out alone."""

    def git(*args: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    assert head(tmp_path / ".git") == ""
    git("init", "-q")
    assert head(tmp_path / ".git") == ""
    git("commit", "-q", "--allow-empty", "-m", "one")
    commit = git("rev-parse", "HEAD")
    assert head(tmp_path / ".git") == commit
    git("pack-refs", "--all")
    assert head(tmp_path / ".git") == commit
    git("checkout", "-q", "--detach")
    assert head(tmp_path / ".git") == commit
