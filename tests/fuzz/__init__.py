"""Fuzzing with bytes and tokens: readers and commands on programs of testdata/ that were broken at random."""
