"""The kernels on ARM (NEON), where a compiler for it and QEMU are installed. `python -m tests.emulate` runs all native tests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import emulate


@pytest.mark.slow
@pytest.mark.skipif(not emulate.is_possible(), reason="needs a compiler for aarch64, QEMU and Debian's packages for arm64")
def test_kernels_on_arm() -> None:
    try:
        emulate.download()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot be downloaded: {error}")
    command = [sys.executable, "-m", "tests.emulate", "tests/engines/native/test_native.py", "-m", "not slow"]
    done = subprocess.run(command, cwd=emulate.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout and "." in done.stdout
