"""Developer tools as functions. The command line parses arguments, calls them and prints the results.

| module | function | what it does |
|---|---|---|
| `reduce` | `reduced(program, interesting)` | makes a program smaller while a check of its text succeeds |
| `bisect` | `bisect(program, pipeline, good)` | finds the step of a pipeline that makes a program go wrong |
| `fuzz` | `campaign(Campaign(...))` | random programs through engines, passes, formats and translations |
| `lit` | `run(source, diagnostics)` | gpt.rs's fixtures: what passes make of a program |
| `inputs` | `Inputs(...).arrays(program)` | inputs of a run, from `NAME=SPEC`, files and random streams |
| `compare` | `against_file(path, outputs, tolerance)` | outputs compared with those of a file or of another engine |
| `debug` | `NonFinite(program, ...)` | an observer that finds the op that made the first NaN |
| `observers` | `Printer`, `Tracer` | observers of a pipeline: programs between passes, a Chrome trace |
| `profile` | `Profile(program)` | how long each op of a run took |
| `reproduce` | `describe(...)`, `read(source)` | reproducers of crashes in passes |
| `expectations` | `compare(source, diagnostics)` | comments with the diagnostics that a program should have |
| `explanations` | `all_codes()` | every diagnostic code, with its meaning and examples |
| `manuals`, `language`, `server` | `page`, `Document`, `serve` | the manual of an op; services for editors; the language server |
| `diff`, `info`, `stats`, `graph`, `fix` | `plain_text`, `describe`, `count`, `dot`, `fixed_text` | their output |
"""
