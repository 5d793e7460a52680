"""Tests that kill: small faults are planted in the sources, one at a time, and the tests of that part have to notice."""
