"""An independent judge of PTO assembly: it runs the text, flags included, and looks for what they leave unordered (facts 4.1).

Every pipe does its instructions in order and side by side with the others. `set_flag` comes behind what its pipe was given
before; `wait_flag` holds its pipe up, and all that follows where that is S. A flag is set once, then waited for once. Two
accesses of one memory by different pipes, of which one is a write, must be ordered so. On a3 two of V need a barrier between.
"""

from __future__ import annotations

import re

PIPES = {"load": "MTE2", "prefetch": "MTE2", "matmul": "M", "gemv": "M", "extract": "MTE1", "extract.vec": "V"}
PIPES |= dict.fromkeys(("insert", "insert.fp", "store.fp"), "FIX")
MOVES = {
    "m2l": "MTE1",
    "m2r": "MTE1",
    "m2b": "MTE1",
    "m2s": "FIX",
    "a2v": "FIX",
    "a2m": "FIX",
    "v2m": "FIX",
    "fp": "FIX",
    "v2v": "V",
}
SIZES = {"i8": 1, "u8": 1, "f8e4m3fn": 1, "f8e5m2": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i64": 8, "u64": 8}
SCALARS = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "remsi": lambda a, b: a % b,
    "divsi": lambda a, b: a // b,
    "minsi": min,
    "maxsi": max,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
}
COMPARISONS = {"slt": lambda a, b: a < b, "sge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b}
COMPARISONS |= {"sle": lambda a, b: a <= b, "sgt": lambda a, b: a > b}


class Judge:
    """One run of the assembly of one function. `problems` are what is wrong, as text."""

    def __init__(self, lines: list[str], arguments: dict[str, int], barriers: bool, cores: tuple[str, ...] = ("vector",)) -> None:
        self.lines = lines
        self.values: dict[str, object] = dict(arguments)
        self.barriers = barriers
        self.problems: list[str] = []
        self.clocks: dict[tuple[str, str], dict] = {}  # per unit: of every unit, how many instructions are complete
        self.counts: dict[tuple[str, str], int] = {}
        self.issued: dict = {}
        self.flags: dict[tuple, dict] = {}
        self.accesses: dict[object, list[tuple]] = {}  # per memory: unit, number, range, writes, line
        self.fenced = 0  # ops of V before this number are behind a barrier
        self.tiles: dict[str, tuple[str, int, int]] = {}
        types = re.findall(r"loc=(\w+)", "\n".join(lines))
        self.mixed = bool(re.search(r"(set_flag|pipe_barrier)\[[^\]]*(cube|vector)\]", "\n".join(lines)))
        self.core = "cube" if not self.mixed and {"Mat", "Left", "Acc"} & set(types) and "Vec" not in types else "vector"
        self.homes = self._homes()

    def _homes(self) -> dict[str, str]:
        found = {}
        for line in self.lines:
            if m := re.match(r"tassign (%[\w.$-]+), (%?[\w.$-]+) : ", line):
                found[m[1]] = m[2]
        return found

    def value(self, text: str):
        text = text.strip()
        return self.values[text] if text.startswith("%") else int(text)

    def unit(self, name: str, types: str) -> tuple[str, str]:
        family = name.split(".")[0]
        if name.startswith("store") and not name.startswith("store.fp"):
            acc = "loc=Acc" in types.split("pto.memref")[0]
            pipe = "FIX" if acc else "MTE3"
        elif family == "mov":
            pipe = MOVES[name.split(".")[1]]
        else:
            scalar = name == "ci" or (name == "reshape" and "loc=Mat" in types)
            pipe = PIPES.get(name) or PIPES.get(family) or ("S" if scalar else "V")
        core = "cube" if pipe in ("M", "MTE1", "FIX") or (pipe in ("S", "MTE2", "MTE3") and "loc=Mat" in types) else "vector"
        return (core if self.mixed else self.core, pipe)

    def run(self) -> list[str]:
        labels = {line[:-1]: k for k, line in enumerate(self.lines) if line.startswith(".L")}
        k = steps = 0
        while k < len(self.lines):
            steps += 1
            assert steps < 50_000
            line = self.lines[k].rstrip(";")
            k += 1
            head, _, types = line.partition(" : ")
            to, _, what = head.partition(" = ") if " = " in head else ("", "", head)
            name, _, rest = what.partition(" ")
            if line.startswith((".arg", ".L")):
                continue
            if line.startswith(".const"):
                text = what.split(" :")[0]
                self.values[head.split()[1]] = int(text) if re.fullmatch(r"-?\d+", text) else {"true": 1, "false": 0}.get(text, 0)
            elif m := re.match(r"(set_flag|wait_flag|pipe_barrier)\[(.*)\]", line):
                self.flag(m[1], m[2].split(", "), line)
            elif name == "br":
                k = labels[rest.strip()]
            elif name == "br.ge":
                a, b, label = rest.split(", ")
                k = labels[label] if self.value(a) >= self.value(b) else k
            elif name == "br.not":
                a, label = rest.split(", ")
                k = labels[label] if not self.value(a) else k
            elif name == "mov":
                moved = [(x, self.values.get(x.strip(), None) if x.strip().startswith("%") else int(x)) for x in rest.split(",")]
                self.values.update(zip([t.strip() for t in to.split(",")], [v for _, v in moved], strict=True))
            elif name == "memref.subview":
                self.values[to] = self.values.get(re.match(r"%[\w.$-]+", rest)[0], re.match(r"%[\w.$-]+", rest)[0])
            elif name == "cmpi":
                predicate, a, b = rest.split(", ")
                self.values[to] = int(COMPARISONS[predicate](self.value(a), self.value(b)))
            elif name in SCALARS:
                self.values[to] = SCALARS[name](*map(self.value, rest.split(", ")))
            elif name.startswith("t") and name != "tassign":
                self.tile(name[1:], to, rest, types, line)
            elif name != "tassign":
                self.values[to] = 1
        left = sorted(str(f) for f, held in self.flags.items() if held is not None)
        self.problems += [f"{f} is still set at the end" for f in left]
        return self.problems

    def flag(self, kind: str, words: list[str], line: str) -> None:
        pipes = [w.removeprefix("PIPE_") for w in words if w.startswith("PIPE_")]
        core = words[-1] if self.mixed else self.core
        other = {"cube": "vector", "vector": "cube"}[core] if "inter" in words else core
        if kind == "pipe_barrier":
            if pipes[0] == "V":
                self.fenced = self.counts.get((core, "V"), 0)
            else:
                for unit, n in self.counts.items():
                    if unit[0] == core:
                        self.issued[unit] = n
                        self.fenced = self.counts.get((core, "V"), 0)
            return
        source, target = (core, pipes[0]), (other, pipes[1])
        eid = next(w for w in words if w.startswith("EVENT_ID"))
        key = ("inter", core, eid) if "inter" in words else (source, target, eid)
        if int(eid.removeprefix("EVENT_ID")) >= (14 if "inter" in words else 8):
            self.problems.append(f"no such id: {line}")
        if kind == "set_flag":
            if self.flags.get(key) is not None:
                self.problems.append(f"set twice: {line}")
            self.flags[key] = self.known(source) | {source: self.counts.get(source, 0), "of": (source, target)}
            return
        held = self.flags.get(key)
        if held is None:
            self.problems.append(f"waits for what is not set: {line}")
            return
        if held["of"] != (source, target):
            self.problems.append(f"waits for another flag: {line}")
        self.flags[key] = None
        clock = self.issued if target[1] == "S" else self.clocks.setdefault(target, {})
        for unit, n in held.items():
            if unit != "of":
                clock[unit] = max(clock.get(unit, 0), n)

    def known(self, unit) -> dict:
        own = self.clocks.setdefault(unit, {})
        for other, n in self.issued.items():
            own[other] = max(own.get(other, 0), n)
        return own

    def tile(self, name: str, to: str, rest: str, types: str, line: str) -> None:
        unit = self.unit(name, types)
        clock = self.known(unit)
        self.counts[unit] = number = self.counts.get(unit, 0) + 1
        made = types.partition(" -> ")[2]
        if name == "reshape":  # it moves nothing: who uses its result reads the source
            source = re.match(r"%[\w.$-]+", rest)[0]
            if to in self.homes and self.place(to) == self.tiles[source][1]:
                self.tiles[to] = self.tiles[source]
                return
        for word in re.findall(r"%[\w.$-]+", re.sub(r"\[[^\]]*\]|\{[^}]*\}", "", rest)):
            if word in self.tiles:
                self.touch(unit, number, clock, *self.tiles[word], False, line)
            elif name.split(".")[0] in ("load", "store"):
                root = self.values.get(word, word)
                self.touch(unit, number, clock, root if isinstance(root, str) else word, 0, 1, name.startswith("store"), line)
        results = [t.strip() for t in to.split(",") if t.strip()]
        for v, (shape, attrs) in zip(results, re.findall(r"tile<([\dx]+x\w+)((?:, [^>]*>)?)>", made), strict=False):
            *extents, dtype = shape.split("x")
            size = SIZES.get(dtype, 4)
            for e in extents:
                size *= int(e)
            space = (re.search(r"loc=(\w+)", attrs) or [0, "Vec"])[1]
            if v in self.homes:
                start = self.place(v)
                place = (space, start, start + size)
            else:
                place = (f"{v} alone", 0, 1)
            self.tiles[v] = place
            self.touch(unit, number, clock, *place, True, line)

    def place(self, v: str) -> int:
        """The address of a tile; a constant may be written behind the op that makes it."""
        name = self.homes[v]
        if not name.startswith("%") or name in self.values:
            return self.value(name)
        line = next(x for x in self.lines if x.startswith(f".const {name} = "))
        return int(line.split(" = ")[1].split(" :")[0])

    def touch(self, unit, number: int, clock: dict, memory: object, start: int, end: int, writes: bool, line: str) -> None:
        before = self.accesses.setdefault(memory, [])
        for other, n, first, last, wrote, earlier in before:
            if not (writes or wrote) or first >= end or start >= last:
                continue
            if other != unit and clock.get(other, 0) < n:
                self.problems.append(f"not ordered: {earlier} / {line}")
            done = max(self.fenced, clock.get(unit, 0))  # a barrier, or another pipe that V waits for, has waited for these
            if other == unit and self.barriers and unit[1] == "V" and n != number and n > done:
                self.problems.append(f"no barrier: {earlier} / {line}")
        before.append((unit, number, start, end, writes, line))
