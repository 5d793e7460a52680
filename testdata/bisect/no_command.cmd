# FAIL[2]: ptir bisect testdata/opt/data/steps.ptir --check no-such-command
