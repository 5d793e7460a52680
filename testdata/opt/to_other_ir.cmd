# FAIL[2]: ptir opt --to mind testdata/opt/pipeline.ptir
