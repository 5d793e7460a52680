"""Drawings: what is in them, where it is, and that the page works in a browser where there is one."""

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ptir_tools
from ptir_tools.core import costs, symbols
from ptir_tools.core.expressions import total
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.plan import plan
from ptir_tools.tools import graph
from ptir_tools.tools.graph.repeats import Run, repeats
from ptir_tools.tools.graph.svg import place

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


def test_equal_layers_are_one_run():
    assert repeats(layers(6).main) == [Run(0, 5, 6)]
    drawing = graph.draw(layers(6))
    boxes = [n for n in drawing.nodes() if n.kind == "repeat"]
    assert [n.title for n in boxes] == [f"{k} of 6 equal runs of 5 ops" for k in range(1, 7)]
    assert [len(n.inside) for n in boxes] == [5] * 6


def test_what_does_not_repeat_is_no_run():
    assert repeats(layers(1).main) == []
    assert repeats(read("testdata/info/program.ptir").main) == []


def test_the_page_holds_the_program_and_nothing_from_elsewhere():
    program = read("testdata/models/resnet.ptir")
    text = "".join(graph.page("a </script> name", [graph.Stage("as read", graph.draw(program))]))
    assert not re.search(r"(src|href)\s*=|https?://|@import", text)
    data = data_of(text)
    assert data["title"] == "a </script> name"
    kinds = [node[0] for node in data["stages"][0]["nodes"]]
    assert kinds.count("op") == sum(len(block.body) for block in program.blocks())
    assert data["plan"] == []


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


def test_the_page_shows_the_plan():
    program = layers(2)
    found = plan(program)
    data = data_of("".join(graph.page("layers", [graph.Stage("as read", graph.draw(program))], found)))
    (arena,) = data["plan"]
    assert arena["peak"] == found.functions["main"].peak
    assert {b[0] for b in arena["buffers"]} == {f"%{b.name}" for b in found.functions["main"].placed()}


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


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
_PROBE = """<script>
try {
  const api = window.ptir, before = api.graph().shown.length;
  api.all(true); const closed = api.graph().shown.length;
  api.all(false); const open = api.graph().shown.length;
  api.show("plan"); api.paint(); api.show("graph"); api.paint();
  document.title = JSON.stringify({before, closed, open, nodes: api.graph().nodes.length});
} catch (error) { document.title = JSON.stringify({error: String(error)}); }
</script></body>"""

_FRAMES = """<script>
try {
  const api = window.ptir, canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect(), frames = [];
  const middle = {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, cancelable: true};
  for (const closed of [true, false]) {
    api.all(closed);
    for (let k = 0; k < 16; k++) {
      const began = performance.now();
      api.paint();
      canvas.getContext("2d").getImageData(0, 0, 1, 1);  // waits until it is drawn
      frames.push(performance.now() - began);
      canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -300, ...middle}));
    }
  }
  document.title = JSON.stringify({ready: api.ready, nodes: api.graph().nodes.length, frames});
} catch (error) { document.title = JSON.stringify({error: String(error)}); }
</script></body>"""


def in_a_browser(program, probe, folder):
    """What a script at the end of the program's page leaves as its title."""
    page = "".join(graph.page("layers", [graph.Stage("as read", graph.draw(program))], plan(program, method="greedy")))
    file = folder / "page.html"
    file.write_text(page.replace("</body>", probe), encoding="utf-8")
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    return json.loads(re.search("<title>(.*?)</title>", shown)[1])


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_works_in_a_browser(tmp_path):
    found = in_a_browser(layers(500), _PROBE, tmp_path)
    nodes = 5 * 500 + 500 + 3  # ops, runs; the function, its parameter, its results
    assert found == {"before": 503, "closed": 503, "open": nodes, "nodes": nodes}


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_ten_thousand_ops_are_drawn_in_time(tmp_path):
    """Open in 2 s, and half of the frames in 50 ms, from everything in sight down to a few boxes, on a busy machine, too."""
    found = in_a_browser(layers(2000), _FRAMES, tmp_path)
    assert found["nodes"] == 12_003 and len(found["frames"]) == 32
    assert found["ready"] < 2000
    assert sorted(found["frames"])[16] < 50, found["frames"]
