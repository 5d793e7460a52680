"""Tests of bridges to other formats."""
