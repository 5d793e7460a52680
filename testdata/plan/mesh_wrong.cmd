# FAIL[1]: ptir plan testdata/plan/mlp.ptir --mesh x=4,y=2 --shard x=x,x --shard w=-,q,y --shard v=-,x+y --shard foo=x --diagnostics short
