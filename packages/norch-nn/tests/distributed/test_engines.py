"""Which engines there are, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from norch.distributed import DistributedError, engines, is_backend_available
from norch.distributed.engine import CONTRACT, Engine


class Pigeons(Engine):
    name = "pigeons"

    def connect(self, *args: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_registered", [])


def test_an_engine_is_registered_at_run_time() -> None:
    assert not is_backend_available("pigeons")
    engine = Pigeons()
    engines.register(engine)
    assert engines.find("pigeons") is engine
    assert is_backend_available("pigeons")


def test_the_one_with_the_highest_priority_is_taken() -> None:
    engine = Pigeons()
    engine.priority = 99
    engines.register(engine)
    assert engines.usable()["cpu"] is engine


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        ((CONTRACT[0] + 1, 0), "it was built for contract 2.0 of norch.distributed, this one has 1.1"),
        ((CONTRACT[0], CONTRACT[1] + 1), "it was built for contract 1.2 of norch.distributed, this one has 1.1"),
    ],
)
def test_an_engine_of_a_newer_contract_is_refused(contract: tuple[int, int], why: str) -> None:
    engine = Pigeons()
    engine.contract = contract
    with pytest.raises(DistributedError, match=rf"{why}; pip install -U norch-nn"):
        engines.register(engine)
    with pytest.raises(DistributedError, match="engine 'pigeons' cannot be used"):
        engines.find("pigeons")


def test_what_is_no_engine_is_refused() -> None:
    class Nothing:
        name = "nothing"

    with pytest.raises(DistributedError, match="expected an Engine, got Nothing, which has no connect"):
        engines.register(Nothing())  # type: ignore[arg-type]


def test_an_engine_says_why_it_cannot_be_used() -> None:
    engine = Pigeons()
    engine.unusable_reason = lambda: "it is raining"  # type: ignore[method-assign]
    with pytest.raises(DistributedError, match="pigeons: .*: it is raining"):
        engines.register(engine)
