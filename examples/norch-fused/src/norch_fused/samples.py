"""What the ops are tried with on every device, and what should come out. Imported by the kit only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from norch.testing.samples import Sample


def swiglu() -> Sample:
    import numpy as np

    from norch.testing.samples import Sample
    from norch.testing.samples.record import case, x

    def oracle(gate: Any, up: Any) -> Any:
        return gate / (1 + np.exp(-gate)) * up

    cases = (case(x(3, 4), x(3, 4)), case(x(2, 3, 4), x(4)), case(x(), x()), case(x(0, 2), x(0, 2)), case(x(70), x(1)))
    return Sample("swiglu", oracle, cases, "float", method=None, loose=4)


def swiglu_grad() -> Sample:
    import numpy as np

    from norch.testing.samples import Sample
    from norch.testing.samples.record import case, x

    from . import swiglu_grad

    def oracle(g: Any, gate: Any, up: Any) -> Any:
        s = 1 / (1 + np.exp(-gate))
        return g * up * s * (1 + gate * (1 - s)), g * gate * s

    cases = (case(x(3, 4), x(3, 4), x(3, 4)), case(x(2, 3), x(2, 3), x(3)), case(x(70), x(70), x(70)))
    return Sample("swiglu_grad", oracle, cases, "float", method=None, loose=8, call=swiglu_grad)
