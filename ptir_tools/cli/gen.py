"""`ptir gen`."""

from __future__ import annotations

from ptir_tools.cli.options import choice, int_range, option, output_option, subcommand
from ptir_tools.cli.output import write_programs
from ptir_tools.cli.session import Session
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.dialects import DIALECTS, FORMATS, OWNERS, load_dialect, writable
from ptir_tools.dialects.writing import program_pieces
from ptir_tools.tools.splitting import divided

_GENERATORS = [name for name, dialect in DIALECTS.items() if dialect.generate is not None]


@subcommand(
    output_option,
    option("--seed", type=int, required=True, metavar="N", help="The seed: it always gives the same program."),
    option("--ir", "--from", type=choice(_GENERATORS), help="The IR (that of --to; ptir)."),
    option("--ops", "--steps", type=int_range(1, 10_000), default=12, metavar="N", help="The approximate number of ops (12)."),
    option("--only", multiple=True, metavar="OP", help="Only these ops, and ops that they need. Repeatable."),
    option(
        "--count", type=int_range(1, 10_000), default=1, metavar="N", help="The number of programs, from consecutive seeds (1)."
    ),
    option("--static", is_flag=True, help="No symbolic extents."),
    option("--networks", is_flag=True, help="Networks: layers of models in place of single ops."),
    option("--faults", is_flag=True, help="A run may end in an error: an index out of range, a division by zero."),
    option("--to", type=choice([form for form in writable() if OWNERS[form].generate is not None]), help="The format."),
    reads=False,
)
def command(
    session: Session,
    output: str | None,
    seed: int,
    ir: str | None,
    ops: int,
    only: tuple[str, ...],
    count: int,
    static: bool,
    networks: bool,
    faults: bool,
    to: str | None,
) -> None:
    """Print a random valid program, from the generators of the toolkit's own property tests.

    They read the declarations of the ops: every op, attribute and dtype occurs. With `--networks` programs are residual and
    branching networks of convolutions, attention, norms, gates and loops instead, with static extents.

    \b
    Examples:
      ptir gen --seed 7
      ptir gen --seed 7 --ops 40 | ptir opt --check
      ptir gen --seed 7 --ir tiny | ptir translate --to ptir --check
      ptir gen --seed 7 --only scan --only add
      ptir gen --seed 7 --count 20 | ptir verify --split-input
      ptir gen --seed 7 --networks | ptir run --random 0 --compare reference
    """
    dialect = load_dialect(ir or (OWNERS[to].name if to else _GENERATORS[0]))
    ir, form, known = dialect.name, to or dialect.formats[0].name, dialect.ops
    names = [name.removeprefix(f"{ir}.") for name in only]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"{ir} has no op `{unknown[0]}`", help=f"`ptir ops --dialect {ir}` lists them")
    if networks and (names or faults):
        raise UsageError("--networks draws whole layers: it goes with neither --only nor --faults")
    diagnostics = Diagnostics()
    how = {} if networks else {"only": names, "symbols": not static, "faults": faults}
    result = (dialect.random(Seeded(n), networks, size=ops, **how) for n in range(seed, seed + count))
    texts = [program_pieces(program, form, diagnostics, session.options) for program in result]
    session.reporter.settle(diagnostics)
    write_programs(output, texts, lambda texts: divided(texts, FORMATS[form].comment))
