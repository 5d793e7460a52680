"""Drawings: what is in them, where it is, and that the page works in a browser where there is one."""

import json
import re
import shutil
import subprocess
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ptir_tools
from ptir_tools.core import costs, symbols
from ptir_tools.core.expressions import total
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.plan import plan
from ptir_tools.tools import graph
from ptir_tools.tools.graph.repeats import Numbers, Run, repeats
from ptir_tools.tools.graph.svg import place
from tests.conftest import run_ptir

ROOT = Path(__file__).parents[2]
FILES = [
    "testdata/info/program.ptir",
    "testdata/models/gpt2_greedy.ptir",
    "testdata/models/resnet.ptir",
    "testdata/pto/40_control_flow.pto",
]
LAYERS = """func @main(%x: tensor<f32, 4>) -> tensor<f32, 4> {{
{}
  return %v{}
}}
"""


def read(path):
    return ptir_tools.read(ROOT / path)


def layers(count, extra=""):
    """`count` equal runs of five ops, of which the second has a constant of its own."""
    lines = []
    last = "%x"
    for k in range(count):
        n = 5 * k
        lines += [
            f"  %v{n} = exp({last}) -> tensor<f32, 4>",
            f"  %v{n + 1} = add(%v{n}, dense<{k}.5> : tensor<f32, 4>) -> tensor<f32, 4>",
            f"  %v{n + 2} = tanh(%v{n + 1}) -> tensor<f32, 4>",
            f"  %v{n + 3} = mul(%v{n + 2}, %v{n}) -> tensor<f32, 4>",
            f"  %v{n + 4} = neg(%v{n + 3}) -> tensor<f32, 4>",
        ]
        last = f"%v{n + 4}"
    return ptir_tools.read(LAYERS.format("\n".join(lines), 5 * count - 1))


def data_of(text):
    """What the page was given."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


@pytest.mark.parametrize("path", FILES)
def test_every_op_and_every_use_is_drawn(path):
    program = read(path)
    drawing = graph.draw(program)
    ops = [op for block in program.blocks() for op in block.body]
    nodes = list(drawing.nodes())
    assert sorted(n.title.split(" [")[0] for n in nodes if n.kind == "op") == sorted(op.defn.short for op in ops)
    uses = sum(1 for block in [*program.functions, *program.regions] for _ in block.uses())
    assert sum(e.style != "region" for e in drawing.edges) == uses
    assert sum(e.style == "region" for e in drawing.edges) == sum(r.isolated for op in ops for r in op.regions)


@pytest.mark.parametrize("path", FILES)
def test_a_node_is_below_what_it_reads_and_no_two_overlap(path):
    drawing = graph.draw(read(path))
    for edge in drawing.edges:
        if edge.source.parent is edge.target.parent and edge.source.parent is not None:
            assert edge.source.row < edge.target.row
    boxes = place(drawing)
    for node in drawing.nodes():
        for a, b in combinations([boxes[n] for n in node.inside], 2):
            apart = a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
            assert apart
        for inner in node.inside:
            a, b = boxes[inner], boxes[node]
            assert b.x <= a.x
            assert a.x + a.width <= b.x + b.width + 1e-6
            assert b.y < a.y
            assert a.y + a.height < b.y + b.height


@pytest.mark.parametrize("path", FILES)
def test_the_svg_is_well_formed(path):
    drawing = graph.draw(read(path))
    root = ElementTree.fromstring("".join(graph.svg(drawing)))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}g")) == len(list(drawing.nodes()))
    assert len(root.findall(f"{space}path")) == len(drawing.edges)

    def numbers(x, *names):
        return tuple(float(x.get(name)) for name in names)

    # The picture is as large as its boxes; each shows its label, and a line goes from the bottom of one to the top of another.
    rects = [numbers(g.find(f"{space}rect"), "x", "y", "width", "height") for g in root.findall(f"{space}g")]
    width, height = numbers(root, "width", "height")
    left = min(r[0] for r in rects)
    assert width == pytest.approx(max(x + w for x, _, w, _ in rects) + left, abs=0.2)
    assert height == pytest.approx(max(y + h for _, y, _, h in rects) + left, abs=0.2)
    boxes = [node for node in drawing.nodes() if node.inside]  # their labels are above the edges
    count = sum(1 + len(node.facts) for node in boxes)
    titles = iter(root.findall(f"{space}text")[-count:])
    for node, g, (x, y, w, h) in zip(drawing.nodes(), root.findall(f"{space}g"), rects, strict=True):
        texts = [next(titles) for _ in (node.title, *node.facts)] if node.inside else g.findall(f"{space}text")
        assert [t.text for t in texts] == [node.title, *node.facts]
        assert g.find(f"{space}title").text == (node.text or node.title)
        places = [numbers(t, "x", "y") for t in texts]
        assert all(x < u < x + w and y < v < y + h for u, v in places)
        assert all(a[1] < b[1] for a, b in pairwise(places))
    ends = dict(zip(drawing.nodes(), rects, strict=True))
    for edge, path in zip(drawing.edges, root.findall(f"{space}path"), strict=True):
        (x, y), *_, (u, v) = points_of(re.findall(r"[MVC]|[-\d.]+", path.get("d")))
        a, b = ends[edge.source], ends[edge.target]
        assert y == pytest.approx(a[1] + a[3], abs=0.2) and a[0] < x < a[0] + a[2]
        assert v == pytest.approx(b[1], abs=0.2) and b[0] < u < b[0] + b[2]
        assert path.find(f"{space}title").text == (edge.label or None)


@pytest.mark.parametrize("path", FILES)
def test_dot_has_a_statement_for_each_node_and_edge(path):
    """A node with nodes inside is a cluster around them. A node says its label, its statement and its unit."""
    drawing = graph.draw(read(path))
    parents, leaves, clusters, edges, open_ = {}, {}, {}, [], []
    for line in list("".join(graph.dot(drawing)).splitlines())[2:-1]:
        if (m := re.fullmatch(r" *subgraph cluster_(n\d+) {", line)) is not None:
            parents[m[1]] = open_[-1] if open_ else None
            open_.append(m[1])
        elif line.strip() == "}":
            open_.pop()
        elif (m := re.fullmatch(r' *label=(".*");', line)) is not None:
            clusters[open_[-1]] = json.loads(m[1])
        elif (m := re.fullmatch(r" *(n\d+) -> (n\d+) \[(.*)\];", line)) is not None:
            edges.append(m.groups())
        elif (m := re.fullmatch(r' *(n\d+) \[label=("(?:[^"\\]|\\.)*")(.*)\];', line)) is not None:
            parents[m[1]] = open_[-1] if open_ else None
            leaves[m[1]] = json.loads(m[2]), m[3]
        else:
            assert line == "  node [shape=box, fontname=monospace];", line
    assert not open_
    nodes = list(drawing.nodes())
    names = {node: f"n{k}" for k, node in enumerate(nodes)}
    pipes = list(dict.fromkeys(n.pipe for n in nodes if n.pipe))
    for node in nodes:
        assert parents[names[node]] == (None if node.parent is None else names[node.parent])
        label = "\n".join([node.title, *node.facts])
        if node.inside:
            assert clusters[names[node]] == label
            continue
        told, attrs = leaves[names[node]]
        assert told == label
        assert (f"tooltip={json.dumps(node.text, ensure_ascii=False)}" in attrs) == bool(node.text)
        color = f'style=filled, fillcolor="/pastel19/{pipes.index(node.pipe) % 9 + 1}"' if node.pipe else ""
        assert color in attrs and ("fillcolor" in attrs) == bool(node.pipe)
        assert ("shape=ellipse" in attrs) == (node.kind in ("parameter", "results") and not node.pipe)
    assert len(parents) == len(nodes)
    for edge, (source, target, attrs) in zip(drawing.edges, edges, strict=True):
        for end, name, mark, last in ((edge.source, source, "ltail", -1), (edge.target, target, "lhead", 0)):
            assert (f"{mark}=cluster_{names[end]}" in attrs) == bool(end.inside)
            while end.inside:
                end = end.inside[last]
            assert name == names[end]
        assert [style for style in ("dashed", "dotted") if style in attrs] == (
            [] if edge.style == "use" else ["dashed" if edge.style == "wait" else "dotted"]
        )
        assert json.dumps(edge.label.partition(":")[0]) in attrs


def crossings(drawing):
    """(edge, node) for each edge that is drawn over a node that it does not belong to."""
    text = "".join(graph.svg(drawing))
    paths = [re.findall(r"[MVC]|[-\d.]+", d) for d in re.findall(r'<path d="(M[^"]*)" fill="none"', text)]
    boxes = place(drawing)
    found = []
    for edge, words in zip(drawing.edges, paths, strict=True):
        points = list(points_of(words))
        for node in drawing.nodes():
            if node.inside or node in (edge.source, edge.target):
                continue
            b = boxes[node]
            inside = [1 for x, y in points if b.x + 1 < x < b.x + b.width - 1 and b.y + 1 < y < b.y + b.height - 1]
            if inside:
                found.append((edge.label, node.text))
    return found


def points_of(words):
    """Points of a path of `M`, `V` and `C`, close to each other."""
    at = 0
    x = y = 0.0
    while at < len(words):
        command, at = words[at], at + 1
        count = {"M": 2, "V": 1, "C": 6}[command]
        values, at = [float(w) for w in words[at : at + count]], at + count
        if command == "M":
            x, y = values
            continue
        a, b, c, d, u, v = values if command == "C" else (x, y, x, values[0], x, values[0])
        for k in range(41):
            t = k / 40
            p = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            yield p[0] * x + p[1] * a + p[2] * c + p[3] * u, p[0] * y + p[1] * b + p[2] * d + p[3] * v
        x, y = u, v


@pytest.mark.parametrize(
    "path", ["testdata/models/gpt2_prefill.ptir", "testdata/models/resnet.ptir", "testdata/models/llama.ptir"]
)
def test_edges_lead_around_nodes(path):
    drawing = graph.draw(read(path), folded=True)
    assert len(drawing.edges) > 20
    assert crossings(drawing) == []


def test_equal_layers_are_one_run():
    assert repeats(layers(6).main.body) == [Run(0, 5, 6)]
    drawing = graph.draw(layers(6))
    (box,) = [n for n in drawing.nodes() if n.kind == "repeat"]
    assert box.title == "×6, 5 ops each"
    assert [n.title for n in box.inside] == [f"{k} of 6" for k in range(1, 7)]
    assert [len(n.inside) for n in box.inside] == [5] * 6


def test_only_the_first_of_equal_runs_is_drawn_when_folded():
    drawing = graph.draw(layers(6), folded=True)
    (box,) = [n for n in drawing.nodes() if n.kind == "repeat"]
    assert [n.title for n in box.inside] == ["1 of 6"] and sum(n.kind == "op" for n in drawing.nodes()) == 5
    ends = [(e.source.title, e.target.title) for e in drawing.edges if box in (e.source, e.target)]
    assert ends == [(box.title, "results")]


def test_ops_are_in_the_name_space_of_their_weights():
    drawing = graph.draw(read("testdata/models/gpt2_prefill.ptir"), folded=True)
    boxes = {n.title: n for n in drawing.nodes() if n.kind == "space"}
    assert {"h0", "h0.attn", "h0.attn.c_attn", "h0.mlp"} <= set(boxes)
    assert boxes["h0.attn.c_attn"].parent is boxes["h0.attn"]
    assert "softmax" not in boxes and any(n.title == "reduce_max" for n in boxes["h0.attn"].within())


def test_a_long_block_is_cut_into_parts():
    lines = [f"  %v{k + 1} = {('exp', 'tanh', 'neg')[(k * k + k // 7) % 3]}(%v{k}) -> tensor<f32, 4>" for k in range(1000)]
    text = "func @main(%v0: tensor<f32, 4>) -> tensor<f32, 4> {\n" + "\n".join(lines) + "\n  return %v1000\n}\n"
    drawing = graph.draw(ptir_tools.read(text), parts=True)
    assert sum(n.kind == "op" for n in drawing.nodes()) == 1000
    assert max(len(n.inside) for n in drawing.nodes()) <= 60


def test_what_does_not_repeat_is_no_run():
    assert repeats(layers(1).main.body) == []
    assert repeats(read("testdata/info/program.ptir").main.body) == []


def test_categories_follow_from_declarations():
    drawing = graph.draw(read("testdata/models/gpt2_prefill.ptir"))
    found = {n.title: str(n.category) for n in drawing.nodes() if n.kind == "op"}
    assert found["dot_general"] == "product" and found["reduce_max"] == "reduction" and found["add"] == "elementwise"
    assert found["constant"] == "constant" and found["reshape"] == found["slice"] == "movement"
    mind = graph.draw(read("testdata/mind/02_mlp_relu.mind.ir"))
    assert [str(n.category) for n in mind.nodes() if n.title == "MatMul"] == ["product"]


def test_the_page_holds_the_program_and_nothing_from_elsewhere():
    program = read("testdata/models/resnet.ptir")
    text = "".join(graph.page("a </script> name", [graph.Stage("as read", graph.draw(program))]))
    text = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"(src|href)\s*=|https?://|@import", text)
    data = data_of(text)
    assert data["title"] == "a </script> name"
    kinds = [node[0] for node in data["stages"][0]["nodes"]]
    assert kinds.count("op") == sum(len(block.body) for block in program.blocks())
    assert data["stages"][0]["plan"] == []


def test_the_page_shows_what_each_pass_did():
    program = read("testdata/models/resnet.ptir")
    stages = graph.Stages(program)
    run_pipeline(program, "cse,dce,recognize", PassContext(hooks=[stages]))
    data = data_of("".join(graph.page("resnet", stages.stages)))
    first, *_, last = data["stages"]
    strings = data["strings"]
    assert last["name"] == "recognize"
    new = [strings[node[3]] for node in last["nodes"] if node[9]]
    gone = [strings[k] for k in last["gone"]]
    assert new and all("custom_call" in text or "reshape" in text or "transpose" in text for text in new)
    assert any("extract_patches" in text for text in gone)
    assert not first["gone"] and not any(node[9] for node in first["nodes"])
    for before, after in zip(data["stages"], data["stages"][1:], strict=False):
        old, now = ({strings[node[3]] for node in stage["nodes"]} for stage in (before, after))
        told = {strings[node[3]] for node in after["nodes"] if node[9]}, {strings[k] for k in after["gone"]}
        assert told[0] <= now - {""} and told[1] <= old - {""}  # what has another name is neither new nor gone
        assert told[0].isdisjoint(told[1]) and (len(told[0]) < len(now) or before is first)
        ops = [sum(node[0] == "op" for node in stage["nodes"]) for stage in (before, after)]
        assert sum(bool(node[9]) for node in after["nodes"]) - len(after["gone"]) == ops[1] - ops[0]


def test_the_page_shows_the_plan():
    program = layers(2)
    found = plan(program)
    data = data_of("".join(graph.page("layers", [graph.Stage("as read", graph.draw(program), found)])))
    (arena,) = data["stages"][0]["plan"]
    assert arena["alive"] == [f"%{b.name}" for b in found.functions["main"].alive_at_peak()]
    assert arena["peak"] == found.functions["main"].peak
    assert {b[0] for b in arena["buffers"]} == {f"%{b.name}" for b in found.functions["main"].placed()}


def test_a_renamed_value_is_neither_new_nor_gone():
    text = "func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {{\n  %{0} = exp(%x) -> tensor<f32, 4>\n"
    text += "  %y = {1}(%{0}) -> tensor<f32, 4>\n  return %y\n}}\n"
    numbers = Numbers()
    stages = [
        graph.Stage(op, graph.draw(ptir_tools.read(text.format(name, op)), numbers=numbers))
        for name, op in (("a", "neg"), ("b", "neg"), ("b", "abs"))
    ]
    _, renamed, changed = data_of("".join(graph.page("page", stages)))["stages"]
    assert not renamed["gone"] and not any(node[9] for node in renamed["nodes"])
    assert len(changed["gone"]) == 1 and sum(node[9] for node in changed["nodes"]) == 1


def test_the_plan_follows_the_passes():
    program = layers(2)
    stages = graph.Stages(program)
    run_pipeline(program, "canonicalize,cse,dce", PassContext(hooks=[stages]))
    assert all(stage.plan is not None for stage in stages.stages)
    symbolic = ptir_tools.read("func @f(%x: tensor<f32, ?N>) -> tensor<f32, ?N> { %y = exp(%x) -> tensor<f32, ?N>\n return %y }")
    assert graph.Stages(symbolic).stages[0].plan is None


def test_two_programs_are_side_by_side_with_their_errors():
    first, second = layers(1), layers(1)
    worst = first.main.body[1].results[0]
    drawing = graph.side_by_side(first, second, {worst: 0.5})
    assert [block.column for block in drawing.blocks] == [0, 1]
    assert [n.error for n in drawing.nodes() if n.kind == "op"] == [None, 0.5, *[None] * 8]


@pytest.mark.parametrize("model", ["gpt2_prefill", "llama", "resnet"])
def test_recognized_kernels_cost_what_their_ops_did(model):
    def cost(program):
        ops = [op for block in program.blocks() for op in block.body]
        return total(map(costs.operations, ops))

    program = read(f"testdata/models/{model}.ptir")
    symbols.specialize(program, dict.fromkeys(symbols.symbols(program), 2))
    run_pipeline(program, "canonicalize,cse,dce")
    before = cost(program)
    run_pipeline(program, "recognize")
    assert any(op.defn.short == "custom_call" for op in program.main.body)
    assert cost(program) == before


@pytest.mark.parametrize(
    ("path", "red"),
    [
        ("testdata/pto/26_bad_missing_wait.pto", {"tile.add [V]": "MissingWait"}),
        ("testdata/verify/all_errors_at_once.ptir", {"transpose": "InvalidAttributeValue", "neg": "ResultTypeMismatch"}),
    ],
)
def test_ops_with_errors_are_red(path, red, tmp_path):
    ran = run_ptir("graph", path, "-o", tmp_path / "page.html")
    assert ran.status == 1 and all(code in ran.err for code in red.values())
    data = data_of((tmp_path / "page.html").read_text("utf-8"))
    strings = data["strings"]
    nodes = [n for n in data["stages"][0]["nodes"] if strings[n[11]] == "error"]
    found = {strings[n[1]]: strings[n[2]].split(":")[0] for n in nodes}
    assert red.items() <= found.items()


@pytest.mark.parametrize("form", ["dot", "svg", "html"])
def test_what_is_not_defined_and_what_is_no_op_are_drawn(form):
    text = "func @f(%x: tensor<f32, 4>) -> tensor<f32, 4> {\n%y = expp(%x) -> tensor<f32, 4>\n"
    text += "%z = add(%x, %q) -> tensor<f32, 4>\nreturn %z\n}\n"
    ran = run_ptir("graph", "--to", form, stdin=text.encode())
    assert ran.status == 1
    assert all(word in ran.text for word in ("not defined here", "line 2: UnknownOp", "UndefinedValue: %q"))


@pytest.mark.parametrize("path", sorted((ROOT / "testdata" / "verify").rglob("*.ptir"))[::3], ids=lambda p: p.stem)
def test_any_program_with_errors_is_drawn_or_refused(path):
    assert run_ptir("graph", "--to", "svg", path).status in (0, 1, 3)


@pytest.mark.parametrize("dark", [True, False], ids=["dark", "light"])
def test_words_of_the_page_differ_from_what_is_below_them(dark):
    """By the ratio of luminances that WCAG 2 asks of small text, 4.5."""

    def luminance(color):
        parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        return sum(w * (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4) for w, x in zip(weights, parts, strict=True))

    def ratio(a, b):
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    weights = (0.2126, 0.7152, 0.0722)
    page = Path(graph.__file__).with_name("page.html").read_text()
    lists = [
        re.search(rf"\b{name} = dark\s*\?(.*?[}}\]])\s*:(.*?[}}\]])", page, re.DOTALL) for name in ("FILL", "COLORS", "PIPES")
    ]
    below = {m[2 - dark]: re.findall(r"#[0-9a-f]{3,6}", m[2 - dark]) for m in lists}
    assert [len(colors) for colors in below.values()] == [9, 10, 6]
    words = {name: re.search(rf'\b{name} = dark \? "(#\w+)" : "(#\w+)"', page)[2 - dark] for name in ("INK", "DIM")}
    error = re.findall(r'error: "(#\w+)"', page)[1 - dark]
    for color in {c for colors in below.values() for c in colors}:
        assert all(ratio(word, color) >= 4.5 for name, word in words.items() if name == "INK" or color != error), color


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
_PROBE = """<script>
try {
  const api = window.ptir, before = api.graph().shown.length;
  api.all(true); const closed = api.graph().shown.length;
  api.all(false); const open = api.graph().shown.length;
  const svg = new DOMParser().parseFromString(api.asSvg(), "image/svg+xml");
  const drawn = svg.querySelector("parsererror") ? -1 : svg.querySelectorAll("path").length;
  const lines = api.graph().lines.length;
  api.show("plan"); api.paint(); api.show("graph"); api.paint();
  const top = api.graph().tops[0]; api.select(top); api.walk("ArrowDown");
  const told = document.getElementById("side").textContent.includes("%x");
  document.title = JSON.stringify({before, closed, open, drawn: drawn === lines, told, nodes: api.graph().nodes.length});
} catch (error) { document.title = JSON.stringify({error: String(error)}); }
</script></body>"""

_VIEW = """<script>
try {
  const api = window.ptir, box = document.querySelector("canvas").getBoundingClientRect(), first = {...api.view()};
  const inside = top => api.graph().shown.filter(n => { while (n.parent) n = n.parent; return n === top; }).length;
  api.fit();
  window.words = 0; api.paint();
  document.title = JSON.stringify({first, fitted: api.view(), words: window.words, tall: api.graph().h / box.height,
    open: api.graph().tops.map(inside)});
} catch (error) { document.title = JSON.stringify({error: String(error)}); }
</script></body>"""

_FRAMES = """<script>
try {
  const api = window.ptir, canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect(), frames = [];
  const middle = {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, cancelable: true};
  for (const closed of [true, false]) {
    api.all(closed);
    for (let k = 0; k < 16; k++) {
      window.calls = 0;
      api.paint();
      frames.push(window.calls);
      canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -300, ...middle}));
    }
  }
  document.title = JSON.stringify({nodes: api.graph().nodes.length, frames});
} catch (error) { document.title = JSON.stringify({error: String(error)}); }
</script></body>"""


_COUNTER = """<body><script>
window.calls = window.words = 0;
const pens = CanvasRenderingContext2D.prototype;
for (const name of Object.getOwnPropertyNames(pens)) {
  const own = Object.getOwnPropertyDescriptor(pens, name).value;
  if (typeof own !== "function") continue;
  pens[name] = function (...given) { window.calls++; window.words += name === "fillText"; return own.apply(this, given); };
}
</script>"""


def in_a_browser(stages, probe, folder):
    """What a script at the end of the page leaves as its title. `window.calls` counts what is drawn."""
    page = "".join(graph.page("layers", stages))
    file = folder / "page.html"
    assert "<body>" in page
    file.write_text(page.replace("<body>", _COUNTER, 1).replace("</body>", probe), encoding="utf-8")
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    return json.loads(re.search("<title>(.*?)</title>", shown)[1])


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_works_in_a_browser(tmp_path):
    found = in_a_browser(graph.Stages(layers(500)).stages, _PROBE, tmp_path)
    nodes = 5 * 500 + 500 + 4  # ops, runs and their box; the function, its parameter, its results
    assert found == {"before": 4, "closed": 4, "open": nodes, "nodes": nodes, "drawn": True, "told": True}


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("model", ["gpt2_prefill", "resnet", "llama"])
def test_a_model_opens_with_few_boxes(model, tmp_path):
    program = read(f"testdata/models/{model}.ptir")
    symbols.specialize(program, dict.fromkeys(symbols.symbols(program), 2))
    found = in_a_browser(graph.Stages(program).stages, _PROBE, tmp_path)
    assert 5 < found["before"] <= 60, found


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_first_view_can_be_read(tmp_path):
    """A tall drawing is not made small, it begins at the top; of two programs side by side the same boxes are open."""
    program = read("testdata/models/gpt2_prefill.ptir")
    symbols.specialize(program, dict.fromkeys(symbols.symbols(program), 2))
    found = in_a_browser(graph.Stages(program).stages, _VIEW, tmp_path)
    assert found["tall"] > 1.5 and 0.5 < found["first"]["zoom"] <= 0.75 and -20 < found["first"]["y"] < 0, found
    assert found["fitted"]["zoom"] < 0.5 and found["words"] > 10, found
    drawing = graph.side_by_side(program, read("testdata/models/gpt2_prefill.ptir"), {})
    left, right = in_a_browser([graph.Stage("both", drawing)], _VIEW, tmp_path)["open"]
    assert left == right > 5


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_of_ten_thousand_ops_only_those_in_sight_are_drawn(tmp_path):
    """From everything in sight down to a few boxes, a frame makes far fewer calls than there are boxes."""
    found = in_a_browser(graph.Stages(layers(2000)).stages, _FRAMES, tmp_path)
    assert found["nodes"] == 12_004 and len(found["frames"]) == 32
    assert min(found["frames"]) > 0 and max(found["frames"]) < 4000, found["frames"]
