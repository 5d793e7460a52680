"""`python -m tests.emulate [pytest arguments]`: the native tests on an ARM processor (aarch64, NEON) that QEMU emulates.

It runs on Debian for amd64, and needs a compiler for ARM, QEMU, and the right to download packages for ARM:

    dpkg --add-architecture arm64 && apt-get update && apt-get install gcc-aarch64-linux-gnu qemu-user

An interpreter for ARM (Debian's Python 3.11) and wheels for ARM are downloaded into `build/emulate` once. The extension is
compiled for each run. Nothing is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.sanitize import ROOT, build_copy, run_on_copy

FOLDER = ROOT / "build" / "emulate"
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
DEBIAN = ["python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "zlib1g", "libexpat1", "libffi8", 
          "libssl3", "libbz2-1.0", "liblzma5", "libuuid1", "libstdc++6", "libgcc-s1", "libsqlite3-0"]  # fmt: skip
WHEELS = ["numpy", "ml_dtypes", "lark", "click", "rich", "pyyaml", "safetensors", "pytest", "hypothesis"]
PLATFORMS = ["manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64"]


def is_possible() -> bool:
    """Whether the compiler and the emulator are installed, and apt knows packages for ARM."""
    if not (shutil.which(COMPILER) and shutil.which(EMULATOR) and shutil.which("apt-get")):
        return False
    return "arm64" in subprocess.run(["dpkg", "--print-foreign-architectures"], capture_output=True, text=True).stdout.split()


def download() -> None:
    """Put an interpreter and the packages it needs into `build/emulate`.

    Raises CalledProcessError where a package is not found.
    """
    root, site, packages = FOLDER / "root", FOLDER / "site", FOLDER / "packages"
    if (FOLDER / "complete").exists():
        return
    packages.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", *(f"{name}:arm64" for name in DEBIAN)], cwd=packages, check=True)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--python-version", "3.11", "--only-binary", ":all:", *platforms]
    subprocess.run([*pip, "--target", str(site), *WHEELS], check=True)
    (FOLDER / "complete").touch()


def main(args: list[str]) -> int:
    """Download what is missing, build, run, and give the exit code of the tests."""
    if not is_possible():
        raise SystemExit(__doc__)
    download()
    build_copy(FOLDER, {"CC": COMPILER, "LDSHARED": f"{COMPILER} -shared"})
    interpreter = [EMULATOR, "-L", str(FOLDER / "root"), str(FOLDER / "root/usr/bin/python3.11")]
    return run_on_copy(FOLDER, interpreter, {"PYTHONPATH": str(FOLDER / "site"), "PYTHONDONTWRITEBYTECODE": "1"}, args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
