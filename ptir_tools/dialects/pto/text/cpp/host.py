"""A host program for the kernels of `pto-cpp`: it calls the entry with arrays from files, and writes its memory to files.

Kernels get the memory of the host itself, as in the library's simulator.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Host, Options, Program
from ptir_tools.core.lazy import np
from ptir_tools.dialects.pto.structure import block_dim
from ptir_tools.dialects.pto.targets import A3, target_of
from ptir_tools.dialects.pto.text.cpp.flow import parameters, slots
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel
from ptir_tools.dialects.pto.text.cpp.spelling import function_name
from ptir_tools.dialects.pto.text.fifos import pipes, splits
from ptir_tools.dialects.pto.types import MemRefType

KERNELS = "kernels.cpp"
_HEAD = """// Calls {name} on the arrays in the files NAME.bin of a folder, and writes its memory to NAME.out there.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <pto/pto-inst.hpp>

#ifndef __DAV_CUBE__
#define __DAV_CUBE__
#endif
#ifndef __DAV_VEC__
#define __DAV_VEC__
#endif
#ifdef __CPU_SIM  // one thread does the parts of both cores, in the order of the text
#define getFFTSMsg(...) 0
#define ffts_cross_core_sync(...)
#define wait_flag_dev(...)
#define set_ffts_base_addr(...)
#define set_intra_block(...)
#define wait_intra_block(...)
#endif
{barrier}
{kernels}

static std::string folder = "data";

static std::vector<char> given(const char *name) {{
  std::ifstream in(folder + "/" + name + ".bin", std::ios::binary);
  if (!in) {{
    std::fprintf(stderr, "%s/%s.bin cannot be read\\n", folder.c_str(), name);
    std::exit(1);
  }}
  return std::vector<char>(std::istreambuf_iterator<char>(in), {{}});
}}

static void made(const char *name, const std::vector<char> &bytes) {{
  std::ofstream(folder + "/" + name + ".out", std::ios::binary).write(bytes.data(), bytes.size());
}}

"""
_MAIN = """int main(int count, char **words) {
  if (count > 1) folder = words[1];
"""
_BARRIER = """
#include <condition_variable>
#include <mutex>
#include <thread>

// One core runs at a time in the simulator. Each runs until it is at a barrier of all cores, or has ended.
static std::mutex turn;
static std::condition_variable changed;
static thread_local std::unique_lock<std::mutex> *mine;
static int arrived = 0, met = 0;

static void meet() {{
  const int before = met;
  if (++arrived == {cores}) {{
    arrived = 0;
    ++met;
    changed.notify_all();
  }} else {{
    changed.wait(*mine, [&] {{ return met != before; }});
  }}
}}

template <auto...> static void all_cores() {{ meet(); }}
#define SYNCALL all_cores
"""
_LAUNCH = """  // on a chip: {name}<<<{cores}, nullptr, stream>>>(…)
  std::vector<std::thread> launched;
  for (int k = 0; k < {cores}; ++k)
    launched.emplace_back([&, k] {{
      std::unique_lock<std::mutex> hold(turn);
      mine = &hold;
      pto::cpu_sim::set_execution_context(k, 0);
      {call}
    }});
  for (auto &core : launched) core.join();
"""

_CORES = """#include <thread>

// The functions of each core are compiled for it. The cores run as threads.
#undef __DAV_CUBE__
#undef __DAV_VEC__
namespace on_cube {{
#define __DAV_CUBE__
#include "{kernels}"
#undef __DAV_CUBE__
}}
namespace on_vector {{
#define __DAV_VEC__
#include "{kernels}"
#undef __DAV_VEC__
}}"""
_SIDES = """  std::thread cube([&] {{
    pto::cpu_sim::set_execution_context(0, 0, {vectors});
    on_cube::{call}
  }});
  std::vector<std::thread> vectors;
  for (int k = 0; k < {vectors}; ++k)
    vectors.emplace_back([&, k] {{
      pto::cpu_sim::set_execution_context(0, k, {vectors});
      on_vector::{call}
    }});
  cube.join();
  for (auto &core : vectors) core.join();
"""


def host(program: Program, options: Options) -> Host:
    """The host program of the entry of `program`, which can be written as C++."""
    main = program.main
    kernel = Kernel(main, program, target_of(program, options) or A3, Diagnostics(program.source))
    reads, arguments, writes = list[str](), list[str](), list[str]()
    memory, extents = dict[str, str](), dict[str, list[str]]()
    for p in main.params:
        for kind, _, spelled in (part.rpartition(" ") for part in parameters(kernel, p)):
            name, variable = spelled.removeprefix("*"), f"a{len(reads)}"
            reads.append(f'  auto {variable} = given("{name}");\n')
            if spelled != name:
                arguments.append(f"({kind} *){variable}.data()")
                writes.append(f'  made("{name}", {variable});\n')
                memory[p.name] = name
            else:
                arguments.append(f"*({kind} *){variable}.data()")
                extents.setdefault(p.name, []).append(name)
    found = pipes(program, kernel.target)
    for fifo, (_, buffer) in zip(kernel.slots, slots(kernel), strict=True):
        reads.append(f"  std::vector<char> {buffer}({found[fifo].bytes});\n")
        arguments.append(f"(uint8_t *){buffer}.data()")
    arguments += ["nullptr"] * bool(kernel.base)
    name = function_name(main)
    call, cores = f"{name}({', '.join(arguments)});", block_dim(main)
    started = _LAUNCH.format(name=name, cores=cores, call=call) if cores > 1 else f"  {call}\n"
    kernels, barrier = f'#include "{KERNELS}"', _BARRIER.format(cores=cores) if cores > 1 else ""
    if found:
        started = _SIDES.format(call=call, vectors=2 if splits(program) else 1)
        kernels = _CORES.format(kernels=KERNELS)
    head = _HEAD.format(name=name, kernels=kernels, barrier=barrier)
    text = "".join([head, _MAIN, *reads, started, *writes, "  return 0;\n}\n"])

    def files(arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = dict[str, "Array"]()
        for p in (p for p in main.params if p.name in arrays):
            array, numbers = arrays[p.name], extents.get(p.name, [])
            if isinstance(p.type, MemRefType):
                found[memory[p.name]] = array
                open_ = [n for n, d in zip(array.shape, p.type.shape, strict=True) if not isinstance(d, int)]
                found |= {name: np.array(n, np.int64) for name, n in zip(numbers, open_, strict=True)}
            else:
                found[numbers[0]] = array
        return found

    return Host(KERNELS, text, files, memory)
