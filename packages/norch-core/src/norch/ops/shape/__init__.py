"""Ops that rearrange: views, joining, splitting, repeating."""
