"""Rewriting: the rewriter, the greedy driver, patterns, rules as data, folding. Specification: PTIR rewrite system."""
