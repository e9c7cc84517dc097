"""`norch.signal`: window functions, in `norch.signal.windows`."""

from . import windows as windows
