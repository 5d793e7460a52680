"""Buffer planning: live ranges, offsets and peak memory of a program's values.

Parameters, constants and results have their own memory. All other values share one arena per function.
"""

from ptir_tools.core.lazy import late
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.plan.record import BlockPlan, Method, Plan, plan, plan_block

if TYPE_CHECKING:
    from ptir_tools.plan.svg import to_svg
    from ptir_tools.plan.write import to_csv, to_json, to_text
else:
    to_svg = late("ptir_tools.plan.svg", "to_svg")
    to_csv, to_json, to_text = (late("ptir_tools.plan.write", name) for name in ("to_csv", "to_json", "to_text"))

__all__ = [
    "BlockPlan", "Method", "Plan", "plan", "plan_block", "to_csv", "to_json", "to_svg", "to_text",
]  # fmt: skip
