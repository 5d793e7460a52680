"""`ptir` as a process: exit codes, pipes, closed streams, terminals, signals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from ptir_tools.cli.commands import COMMANDS
from ptir_tools.cli.session import Session
from tests.conftest import ROOT, run_ptir

PTIR = [sys.executable, "-c", "import sys; from ptir_tools.__main__ import main; sys.exit(main())"]
OK = "testdata/verify/ok.ptir"


def ptir(*args: str | Path, **more: object) -> subprocess.CompletedProcess[bytes]:
    """Run `ptir` in a process of its own."""
    return subprocess.run([*PTIR, *map(str, args)], capture_output=True, timeout=60, cwd=ROOT, **more)  # type: ignore[call-overload, no-any-return]


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `ptir` is the tool under test."""
    function = f'ptir() {{ "{sys.executable}" -c "{PTIR[2]}" "$@"; }}\n'
    return subprocess.run(["bash", "-c", function + command], capture_output=True, text=True, timeout=60, cwd=ROOT)


def test_version() -> None:
    ran = ptir("--version")
    assert ran.returncode == 0 and ran.stdout.startswith(b"ptir ")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_exit_codes(command: str) -> None:
    ran = run_ptir(command, "--help")
    assert ran.status == 0
    assert "Examples:" in ran.text and f"ptir {command}" in ran.text
    assert re.search(r"Exit codes:\n(.*\n)*  70 +internal error", ran.text)


def test_help_is_a_word_too() -> None:
    assert run_ptir("help").text == run_ptir("--help").text
    assert run_ptir("help", "opt").text == run_ptir("opt", "--help").text


@pytest.mark.parametrize("command", COMMANDS)
def test_short_help_is_the_head_of_the_long_one(command: str) -> None:
    """Usage, examples and the command's own options; it says how to see the rest."""
    short, long = run_ptir(command, "-h"), run_ptir(command, "--help")
    head, _, last = short.text.partition("-h, --help")
    assert short.status == 0 and head and long.text.startswith(head[: head.index("Options:")])
    assert f"`ptir {command} --help`" in " ".join(last.split()) and len(short.text) < len(long.text)
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", short.text, re.MULTILINE))
    assert options <= set(re.findall(r"--[a-z-]+", long.text)) and "--diagnostics" not in options


def test_help_lists_every_command() -> None:
    ran = run_ptir("--help")
    assert ran.status == 0 and all(f"  {c} " in ran.text for c in COMMANDS) and "..." not in ran.text.partition("Options:")[2]


@pytest.mark.parametrize(
    ("args", "said"),
    [((), "Usage: ptir"), (("verfy",), "did you mean `verify`?"), (("--verison",), "--version"), (("fmt", "-z"), "-z")],
)
def test_wrong_usage(args: tuple[str, ...], said: str) -> None:
    ran = run_ptir(*args)
    assert ran.status == 2 and said in ran.err, ran


def test_wrong_usage_in_json_is_json() -> None:
    ran = run_ptir("plan", "--diagnostics", "json", "--limit", "many", OK)
    assert ran.status == 2 and ran.err.startswith('{"severity": "error", "code": "UsageError"')


def test_head_ends_quietly(tmp_path: Path) -> None:
    lines = "".join(f"  %v{i} = neg(%x) -> tensor<f32, 2>\n" for i in range(20_000))
    (tmp_path / "big.ptir").write_text(f"func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {{\n{lines}  return %x\n}}\n")
    ran = shell(f"ptir translate --to ptir {tmp_path}/big.ptir | head -1; echo ${{PIPESTATUS[0]}}")
    assert ran.stdout == "func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n141\n"
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("> {}", "error[IOError]: standard output: file too large\n"),
        ("-o {}", "error[IOError]: file too large\n --> {}\n"),
    ],
)
def test_a_file_that_cannot_grow(how: str, said: str, tmp_path: Path) -> None:
    """As on a full disk: writing fails in the middle. With -o the old file stands, and nothing is left beside it."""
    path = tmp_path / "out.json"
    path.write_text("old")
    write = f"ptir translate --to ptir-json testdata/ptir/dump/d04_gpt2_block_prefill.json {how.format(path)}"
    ran = shell(f"export PYTHONDONTWRITEBYTECODE=1; ulimit -f 8; {write}; echo $?")
    assert ran.stdout == "4\n"
    assert ran.stderr == said.format(path)
    assert (path.read_text() == "old") is ("-o" in how) and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"ptir verify {OK} >&-", 0),
        (f"ptir verify {OK} 2>&-", 0),
        (f"ptir verify {OK} <&- >&- 2>&-", 0),
        (f"ptir translate --to ptir {OK} >&-", 4),
        ("ptir verify testdata/verify/syntax.ptir 2>&-", 1),
        ("ptir verify <&-", 1),
    ],
)
def test_closed_streams(line: str, status: int) -> None:
    ran = shell(f"{line}; exit $?")
    assert ran.returncode == status
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero")
@pytest.mark.parametrize("line", ["verify /dev/zero", "opt < /dev/zero", "fmt /dev/full"])
def test_a_device_that_does_not_end(line: str) -> None:
    """It is refused before much of it is read, with as little memory as any small file takes."""
    ran = shell(f"ulimit -v 400000; ptir {line}")  # kilobytes
    assert ran.returncode == 3 and "is a device, of which no more than 1048576 bytes are read" in ran.stderr


def test_interrupt(tmp_path: Path) -> None:
    endless = ROOT / "testdata" / "run" / "endless.ptir"
    # A suite in the background of a shell ignores the signal, and its children with it.
    start = "import signal, sys, numpy; signal.signal(signal.SIGINT, signal.default_int_handler); "
    start += "from ptir_tools.cli import main; print(flush=True); sys.exit(main())"
    command = ["run", str(endless), "--input", "x=0", "--max-iterations", "1T", "--engine", "reference"]
    process = subprocess.Popen([sys.executable, "-c", start, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == b"\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert (out, err) == (b"", b"error: interrupted\n")


@pytest.mark.parametrize("line", ["'--help'", "'verify', 'PROGRAM'", "'run', 'PROGRAM', '--random', '0', '--engine', 'numpy'"])
def test_an_interrupt_while_modules_are_loaded(line: str) -> None:
    """The signal comes at the n-th module that is looked for: from the first on, and later ones too."""
    program = str(ROOT / "testdata" / "run" / "div_zero.ptir")
    for n in (1, 2, 5, 20, 60):
        start = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from ptir_tools.__main__ import main
class Watch:
    left = {n}
    def find_spec(self, *_):
        Watch.left -= 1
        if Watch.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Watch())
sys.argv[1:] = [{line.replace("PROGRAM", program)}]
sys.exit(main())
"""
        ran = subprocess.run([sys.executable, "-c", start], capture_output=True, cwd=ROOT)
        assert (ran.returncode, ran.stdout, ran.stderr) == (130, b"", b"error: interrupted\n"), n


def on_terminal(*args: str, columns: int = 0, **environment: str) -> tuple[int, str]:
    """(exit code, what is shown) with all three streams on a terminal, of so many columns (0: it does not say)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 0, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | environment
    process = subprocess.Popen([*PTIR, *args], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=env)
    os.close(slave)
    shown = b""
    try:
        while piece := os.read(master, 65536):
            shown += piece
    except OSError:  # the other side is closed
        pass
    os.close(master)
    return process.wait(timeout=60), shown.decode()


def test_on_a_terminal() -> None:
    status, shown = on_terminal("verify", OK)
    assert (status, shown) == (0, f"{OK}: ok (ptir)\r\n")
    status, shown = on_terminal("verify")
    assert status == 2 and "terminal" in shown
    assert on_terminal("verify", "-q", OK) == (0, "")


def test_binary_is_not_written_to_a_terminal() -> None:
    status, shown = on_terminal("run", "testdata/run/add.ptir", "--random", "0", "-o", "-")
    assert status == 2 and "not written to a terminal" in shown


TABLES = {
    "plan testdata/plan/softmax.ptir": "in-place of %shift",
    "stats testdata/plan/softmax.ptir": "operations",
    "opt --list-passes": "canonicalize",
    "opt --timing --stats testdata/opt/default.ptir": "total",
    "run --random 0 --repeat 2 --timing testdata/plan/softmax.ptir": "(least",
}


@pytest.mark.parametrize("columns", ["0", "1", "20", "x"])
def test_a_narrow_terminal_hides_nothing(columns: str) -> None:
    status, shown = on_terminal("opt", "--timing", "testdata/opt/default.ptir", COLUMNS=columns)
    assert status == 0 and "--verify-each" in shown and "canonicalize" in shown


def test_help_without_docstrings() -> None:
    for args in (["--help"], ["opt", "--help"], ["opt", "--list-passes"]):
        assert ptir(*args, env=os.environ | {"PYTHONOPTIMIZE": "2"}).returncode == 0


@pytest.mark.parametrize("line", TABLES)
def test_tables_are_drawn_on_a_terminal_only(line: str) -> None:
    status, shown = on_terminal(*line.split(), NO_COLOR="1")
    assert status == 0 and TABLES[line] in shown and "───" in shown
    assert "───" not in on_terminal(*line.split(), TERM="dumb")[1]
    ran = run_ptir(*line.split())
    assert TABLES[line] in ran.text + ran.err and "───" not in ran.text + ran.err


LONG = {  # what takes long, and how it says how far it is
    "fuzz --count 3 --ir tiny": r"\d+ cases, 0 findings",
    "plan --from csv testdata/plan/data/minimalloc/D.1048576.csv --algorithm exact --time-limit 0.3 -o %s": (
        r"searching: peak \d+, lower bound \d+"
    ),
    "plan testdata/plan/softmax.ptir --order min-peak -o %s": r"ordering @softmax: 7 ops",
    "conform tiny testdata/conformance/tiny/ir_verification --json": r"case 1 of \d+: testdata/",
    "bench testdata/plan/softmax.ptir --min-time 0.01 --json": r"testdata/plan/softmax.ptir: measuring",
}
_CLEARED = re.compile(r"[^\n]*\r\x1b\[K")


@pytest.mark.parametrize("line", LONG)
def test_progress_is_shown_on_a_terminal_and_gone_at_the_end(line: str, tmp_path: Path) -> None:
    words = [str(tmp_path / "out") if word == "%s" else word for word in line.split()]
    status, shown = on_terminal(*words)
    assert status == 0
    assert re.match(LONG[line], shown)
    assert not re.search(LONG[line], _CLEARED.sub("", shown))
    for quiet in (on_terminal(*words, "-q"), on_terminal(*words, TERM="dumb")):
        assert quiet[0] == 0 and "\x1b" not in quiet[1] and not re.search(LONG[line], quiet[1])


@pytest.mark.parametrize("line", LONG)
def test_a_pipe_sees_no_progress(line: str, tmp_path: Path) -> None:
    ran = ptir(*(str(tmp_path / "out") if word == "%s" else word for word in line.split()))
    assert ran.returncode == 0
    assert b"\x1b" not in ran.stderr + ran.stdout and not re.search(LONG[line], ran.stderr.decode())


def test_a_line_of_progress_fits_the_terminal() -> None:
    _, shown = on_terminal("conform", "tiny", "testdata/conformance/tiny/ir_verification", "--json", columns=30)
    lines = re.findall(r"case [^\r\n]*(?=\r\x1b\[K)", shown)
    assert lines and {len(line) for line in lines} == {29}


def test_a_finding_takes_the_place_of_progress(tmp_path: Path) -> None:
    (tmp_path / "no-case.yaml").write_text("a: [")
    status, shown = on_terminal("conform", "tiny", str(tmp_path), "--json", "--diagnostics", "short")
    assert status == 1
    assert re.match(r"case 1 of 1: [^\r]*\r\x1b\[K/[^\r]*: error\[", shown)


COLORED = [
    ("auto", {}, True),
    ("auto", {"NO_COLOR": "1"}, False),
    ("auto", {"TERM": "dumb"}, False),
    ("never", {}, False),
    ("always", {"NO_COLOR": "1"}, True),
]


@pytest.mark.parametrize(("option", "environment", "colored"), COLORED)
def test_color(option: str, environment: dict[str, str], colored: bool) -> None:
    _, shown = on_terminal("verify", "--color", option, "testdata/verify/syntax.ptir", **environment)
    assert ("\x1b[" in shown) is colored


def test_a_pipe_sees_no_color() -> None:
    assert b"\x1b[" not in ptir("verify", "testdata/verify/syntax.ptir").stderr


def test_the_locale_does_not_matter() -> None:
    path = "testdata/verify/wide_characters.mind.ir"
    shown = {ptir("verify", path, env={**os.environ, "LC_ALL": c, "PYTHONUTF8": "0"}).stderr for c in ("C", "POSIX", "C.UTF-8")}
    assert len(shown) == 1
    assert ptir("fmt", path, env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}).stdout.decode("utf-8").count("漢字") == 1


def test_the_hash_seed_does_not_matter() -> None:
    def run(seed: str) -> bytes:
        ran = ptir("opt", "-v", "--stats", "testdata/opt/default.ptir", env={**os.environ, "PYTHONHASHSEED": seed})
        return ran.stdout + ran.stderr

    assert len({run(seed) for seed in "012"}) == 1


def test_an_internal_error_leaves_a_reproducer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(Session, "verify", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = run_ptir("verify", OK)
    assert ran.status == 70
    assert ran.err.startswith("error: internal error: RuntimeError: a fault of ours\n") and "Traceback" not in ran.err
    (path,) = tmp_path.iterdir()
    assert str(path) in ran.err
    monkeypatch.undo()
    kept = path.read_text()
    assert "a fault of ours" in kept and f"ptir verify {OK}" in kept
    assert run_ptir("verify", path).status == 0  # it reads as the program that failed


def test_out_of_memory_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Session, "parse", hungry)
    ran = run_ptir("verify", OK)
    assert ran.status == 3 and ran.err == f"error[LimitExceeded]: out of memory\n --> {OK}\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_is_taken_in_part_is_an_error(unbuffered: str, tmp_path: Path) -> None:
    """Python without buffers would write once, and not look how much was taken."""
    path = tmp_path / "long.ptir"
    path.write_text(f"// {'x' * 500_000}\nfunc @f(%x: tensor<f32>) -> tensor<f32> {{\n  return %x\n}}\n")
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([*PTIR, "fmt", path], stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None and process.stdout.read(10) == b"// xxxxxxx"
        process.stdout.close()
        assert process.wait(60) == 141
    assert ptir("fmt", path, env=env).stdout == path.read_bytes()


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        ("ptir op", "plain,ops"),
        ("ptir opt --print-ir-d", "plain,--print-ir-diff"),
        ("ptir opt -p canonicalize,cs", "plain,canonicalize,cse"),
        ("ptir opt -p fixpoint(cs", "plain,fixpoint(cse"),
        ("ptir explain E3001", "plain,E3001"),
        ("ptir ops dot_", "plain,dot_general"),
        ("ptir translate x --to pto-a", "plain,pto-as"),
        ("ptir verify --target a3", "plain,a3"),
        ("ptir targets a5", "plain,a5"),
        ("ptir verify testdata/ok", "file,testdata/ok"),
        ("ptir opt --print-ir-tree d", "dir,d"),
    ],
)
def test_shells_complete_what_an_option_takes(line: str, proposed: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_PTIR_COMPLETE": "bash_complete"}
    ran = ptir(env={**os.environ, **words})
    assert proposed in ran.stdout.decode().splitlines(), ran.stderr.decode()


def test_diagnostics_that_nobody_reads(tmp_path: Path) -> None:
    (tmp_path / "bad.ptir").write_text("".join(f"{i}\n" for i in range(5000)))
    ran = shell(f"ptir verify --from mind --max-errors 100000 {tmp_path}/bad.ptir 2>&1 | head -1; echo ${{PIPESTATUS[0]}}")
    assert ran.stdout.splitlines()[-1] == "141" and not ran.stderr


def test_the_package_runs_as_the_command_line() -> None:
    ran = subprocess.run([sys.executable, "-m", "ptir_tools", "verify", OK], capture_output=True, timeout=60, cwd=ROOT)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    ran = subprocess.run([sys.executable, "-m", "ptir_tools", "opt", "no/file"], capture_output=True, timeout=60, cwd=ROOT)
    assert ran.returncode == 4 and ran.stderr == b"error[IOError]: no such file or directory\n --> no/file\n"


@pytest.mark.parametrize("profiled", [False, True])
def test_what_is_left_for_the_end_of_the_process_is_done(profiled: bool) -> None:
    """Threads are waited for, and what asked to be called is; only a profiler sees the call return."""
    code = f"""
import atexit, sys, threading
from ptir_tools.__main__ import main
thread = threading.Thread(target=lambda: (threading.main_thread().join(), print("thread")))
atexit.register(print, "exit")
thread.start()
sys.setprofile({"lambda *_: None" if profiled else "None"})
sys.argv[1:] = ["verify", "-q", {str(ROOT / OK)!r}]
status = main()
sys.setprofile(None)
print("returned")
sys.exit(status)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == ["returned"] * profiled + ["thread", "exit"]


def test_a_folder_is_every_program_below_it(tmp_path: Path) -> None:
    good, bad = ((ROOT / "testdata" / "verify" / f"{name}.ptir").read_text() for name in ("ok", "syntax"))
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.ptir").write_text(good)
    assert ptir("verify", tmp_path).returncode == 0
    (tmp_path / "sub" / "a.ptir").write_text(bad)
    (tmp_path / "sub" / "notes.txt").write_text("nothing that anyone recognizes\n")
    ran = ptir("verify", tmp_path)
    assert ran.returncode == 1
    assert b"sub/a.ptir" in ran.stderr and b"error[UnknownFormat]" in ran.stderr and b"sub/notes.txt:1:1" in ran.stderr
    (tmp_path / "sub" / "a.ptir").unlink()
    assert ptir("verify", tmp_path).returncode == 1, "a file that no one recognizes is no all-clear"
    (tmp_path / "sub" / "notes.txt").rename(tmp_path / "sub" / "weights.npz")
    assert ptir("verify", tmp_path).returncode == 0
    (tmp_path / "empty").mkdir()
    assert ptir("verify", tmp_path / "empty").returncode == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four programs, one of them wrong, and one file that is none."""
    made = tmp_path / "programs"
    (made / "sub").mkdir(parents=True)
    for place, source in {"a": "verify/ok", "sub/b": "verify/syntax", "sub/c": "opt/default", "z": "verify/ok"}.items():
        (made / f"{place}.ptir").write_text((ROOT / "testdata" / f"{source}.ptir").read_text())
    (made / "README.md").write_text("no program\n")
    return made


@pytest.mark.parametrize("command", ["verify", "opt", "canonicalize", "fmt --check --diff", "verify -v --diagnostics sarif"])
def test_several_at_once_report_as_one_after_the_other(folder: Path, command: str) -> None:
    one, several = (ptir(*command.split(), "-j", jobs, folder) for jobs in ("1", "3"))
    assert (several.returncode, several.stdout, several.stderr) == (one.returncode, one.stdout, one.stderr)
    assert one.returncode == 1 and one.stderr.count(b"error[") + one.stdout.count(b'"level": "error"') >= 3


def test_a_folder_and_a_file_elsewhere_go_to_one_folder(folder: Path, tmp_path: Path) -> None:
    """One named by its path from here, the other by its whole path."""
    (folder / "sub" / "b.ptir").unlink()
    other = tmp_path / "other.ptir"
    other.write_bytes((folder / "a.ptir").read_bytes())
    here = os.path.relpath(folder / "sub", ROOT)
    assert ptir("opt", "-p", "cse", here, other, "-o", tmp_path / "made").returncode == 0
    assert sorted(p.name for p in (tmp_path / "made").iterdir()) == ["c.ptir", "other.ptir"]


def test_the_command_ends_where_usage_is_wrong_however_many_at_once(folder: Path) -> None:
    one, several = (ptir("opt", "-p", "nonsense", "-j", jobs, folder) for jobs in ("1", "3"))
    assert (several.returncode, several.stderr) == (one.returncode, one.stderr)
    assert one.returncode == 2 and one.stderr.count(b"unknown pass") == 1


def test_opt_of_a_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").unlink()
    (folder / "sub" / "b.ptir").unlink()
    alone = {name: ptir("opt", folder / name).stdout for name in ("a.ptir", "sub/c.ptir", "z.ptir")}
    assert ptir("opt", folder).stdout == b"\n// -----\n\n".join(alone[name] for name in sorted(alone))
    assert ptir("opt", folder, "-o", tmp_path / "made", "-j", "2").returncode == 0
    assert {name: (tmp_path / "made" / name).read_bytes() for name in alone} == alone
    before = (folder / "sub" / "c.ptir").read_bytes()
    assert ptir("opt", folder, "--in-place", "-j", "2").returncode == 0
    assert {name: (folder / name).read_bytes() for name in alone} == alone != before
    for wrong in ("--in-place --to ptir", "--weights-to w.npz", "-j 2 --trace t.json", f"-o {folder}/a.ptir"):
        assert ptir("opt", folder, *wrong.split()).returncode == 2, wrong


def test_a_small_file_costs_little_memory(tmp_path: Path) -> None:
    (tmp_path / "p.ptir").write_text("func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x\n}\n")
    code = "import tracemalloc, sys; from ptir_tools.cli import invoke; tracemalloc.start(); invoke(['verify', sys.argv[1]]);"
    code += "print(tracemalloc.get_traced_memory()[1])"
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "p.ptir")], capture_output=True, timeout=60, cwd=ROOT)
    assert int(ran.stdout) < 64 << 20
