"""What `norch.special` computes by series, recurrences and quadrature, in float64."""
