# FAIL[1]: ptir lit --gptrs testdata/mind/01_add_tool_style.mind.ir
