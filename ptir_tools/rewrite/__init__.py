"""Rewriting: the rewriter, the one greedy driver, patterns, rules as data, folding. Specification: PTIR rewrite system."""
