# FAIL[2]: ptir bisect testdata/opt/data/steps.ptir --check 'grep -q nothing'
