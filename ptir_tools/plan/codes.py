"""The codes of what is wrong with intervals and plans that are read from files."""

from ptir_tools.core.dialect import Code

EXPLAIN = (
    Code(
        "InvalidInterval",
        "A line of a CSV of intervals is not `id,lower,upper,size` as the first line names the columns: the three numbers are "
        "integers, lower is below upper (the range is half-open), size is not negative, an id stands once.",
        wrong="id,lower,upper,size\na,4,4,64\n",
        right="id,lower,upper,size\na,4,5,64\n",
    ),
    Code(
        "InvalidPlan",
        "A plan is not one of the program it is held against: a value is missing or has too few bytes, lives shorter than the "
        "program needs it, shares storage it may not share, is misaligned, reaches beyond the peak that the plan states, or "
        "lies over another value that is alive at the same time.",
    ),
)
