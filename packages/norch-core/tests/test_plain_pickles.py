"""Tensors that PyTorch pickled by pickle itself."""

from __future__ import annotations

import base64
import io
import pickle
import zlib

import norch

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
