"""Tensors that PyTorch pickled by pickle itself, and objects that another module pickles."""

from __future__ import annotations

import base64
import io
import pickle
import zlib
from typing import Any, ClassVar

import pytest

import norch
from norch.serialization import objects

PICKLED = (
    "c-"
    "qyHO>fgM7=RroYo(6C1gG6NhD+5>ZML2^ZD<#ZuW`u*Sy^HhBQLH$(rHMQa_QJmZkQVfj{J=M9ex7R4!mtZ6sbrY!HON{^%L9gqq"
    "hn^ZUt!3rY@|531{c7zGJ0M^DZqd7sl21sb(i77a6szFjCXWw)+6|MuQo6C8x~Qn^edoqp!6*qbC=Z8K4dxcnDSaeMj7WI{NnT&6"
    "np}-"
    "3mYX>ccoyD2zAZ=&_borc%%e(}v4Jc>u&4up+p%f>BmvJSh~uiaQXr7h^^Zf6I*Wrz!~JH3*tqYOB@=j(zyzg;gyQ#Pi&QEKXIM1"
    "Z4?lhH-liH&<3DU8K-Cf{WXiO|YZ9_%1M`!S0|p9BuFP`~7HFHT$OHQu(Cy)T-"
    "bG?Dk5bRjikETWGmedob+71HFR&dEd?4u_GSA1YbJh6YtVp*X!Uwu+)MA(7ygmXH2u~F;6X+e01zA{8I;zn{jy%=Iz7Vf8Ok2p6F"
    "F#qn%Md8ufa=i^VI&{$fEa{-"
    "M;vjY3553`EY{b$;)sBJbSgc&Tj1iB8U#Wg0Xt#2xtmbyd!V3<uFL`b&8YyCe^xn|Vdv{88c6V)hPZW%oN@%`$Q"
)
"""Of PyTorch 2.13: zlib.compress(pickle.dumps({"view": torch.arange(6.0).reshape(2, 3)[:, 1:], "ints":
torch.tensor([1, 2], dtype=torch.int8), "w": nn.Parameter(torch.tensor([1.5, -2.0]))}, 4), 9), in base 85."""


class AsTorch(pickle.Unpickler):
    """Finds in norch what is to be found in torch, as under the stand-in."""

    def find_class(self, module: str, name: str):
        return super().find_class(module.replace("torch", "norch", 1), name)


def test_tensors_that_pytorch_pickled_are_read() -> None:
    found = AsTorch(io.BytesIO(zlib.decompress(base64.b85decode(PICKLED)))).load()
    assert found["view"].tolist() == [[1.0, 2.0], [4.0, 5.0]]
    assert found["view"].stride() == (3, 1)
    assert found["ints"].dtype is norch.int8
    assert found["ints"].tolist() == [1, 2]
    assert found["w"].tolist() == [1.5, -2.0]
    assert found["w"].requires_grad


class Doubled:
    def __init__(self, value: norch.Tensor) -> None:
        self.value = value


def halved(value: norch.Tensor) -> Doubled:
    return Doubled(value / 2)


class OwnPickle:
    """In the place of the module pickle: its pickler halves what is doubled, its unpickler counts names."""

    names: ClassVar[list[str]] = []

    class Pickler(pickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            return (halved, (obj.value * 2,)) if isinstance(obj, Doubled) else NotImplemented

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            OwnPickle.names.append(name)
            return super().find_class(module, name)


def test_objects_are_pickled_by_the_module_that_is_given() -> None:
    x = norch.arange(3.0)
    file = io.BytesIO()
    norch.save({"a": Doubled(x), "x": x}, file, OwnPickle)
    for options in ({}, {"weights_only": False}):
        OwnPickle.names.clear()
        file.seek(0)
        found = norch.load(file, pickle_module=OwnPickle, **options)
        assert found["a"].value.tolist() == found["x"].tolist() == [0, 1, 2]
        assert OwnPickle.names == ["halved"]
    file.seek(0)
    with pytest.raises(norch.RefusedPickleError, match="halved"):
        norch.load(file)
    with pytest.raises(ValueError, match="weights_only"):
        norch.load(file, pickle_module=pickle, weights_only=True)
    with pytest.raises(pickle.UnpicklingError, match="no module of norch"):
        objects.find("os", "system")
    state = io.BytesIO()
    norch.save({"x": x}, state, pickle_module=pickle)
    state.seek(0)
    assert norch.load(state)["x"].tolist() == [0, 1, 2]
