"""Elementwise ops: arithmetic, comparisons, logic, functions of one and of several variables."""
