# FAIL[1]: ptir bisect testdata/opt/data/steps.ptir --check 'grep -q dense'
