"""Write every model of this folder as text PTIR beside its weights and inputs: `python testdata/models [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

import gpt2
import llama
import mobilenet
import quantized_mlp
import resnet
from safetensors.numpy import save

import ptir_tools as ptir

MODELS = (gpt2, llama, resnet, mobilenet, quantized_mlp)


def write(folder: Path) -> None:
    """Each program, the weights that its module's programs share, its inputs."""
    for module in MODELS:
        inputs = module.inputs()
        for name, build in module.PROGRAMS.items():
            text = ptir.write(build(), weights=folder / f"{module.__name__}.safetensors")
            (folder / f"{name}.ptir").write_text(text, "utf-8")
            (folder / f"{name}.inputs.safetensors").write_bytes(save(inputs[name]))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
