"""Ops along dims: reductions, scans, sorting, statistics."""
