"""Tests of PTO IR: its ops, text, order, memory, machine and passes."""
