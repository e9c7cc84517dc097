"""Lines as training scripts write them, each run with `t` norch and with `t` PyTorch: the same values come out.

Values, dtypes, shapes and Python types. Runs where PyTorch is installed.
"""

from __future__ import annotations

import numpy as np
import pytest

import norch

torch = pytest.importorskip("torch")

LINES = """
t.tensor([1,2,3]).float().mean().item()
t.max(t.tensor([[1.,5.],[3.,2.]]), 1)[1]
t.max(t.tensor([[1.,5.],[3.,2.]]), dim=1).indices
t.topk(t.arange(10.), 3).values
t.arange(6).view(2,3).permute(1,0).contiguous().view(-1)
t.zeros(3).scatter_(0, t.tensor([0,2]), 1.0)
t.zeros(2,3).scatter_(1, t.tensor([[0],[2]]), 1)
t.zeros(2,3).scatter(1, t.tensor([[0],[2]]), value=2.)
t.zeros(3).scatter_(0, t.tensor([0,0]), t.tensor([1.,2.]), reduce="add")
t.zeros(3).index_add(0, t.tensor([0,0]), t.tensor([1.,2.]))
t.where(t.tensor([True,False]), 1.0, 0.0)
t.where(t.tensor([True,False]), t.tensor([1.,2.]), 0.0)
t.tensor([1.,2.]).clamp_(min=1.5)
t.stack([t.tensor(1.), t.tensor(2.)])
t.cat((t.zeros(1,2), t.ones(1,2)), dim=-1)
t.cat([t.zeros(1,2), t.ones(1,2)], axis=0)
t.einsum("bi,bj->bij", t.ones(2,3), t.ones(2,4))
t.einsum("bi,bj->bij", [t.ones(2,3), t.ones(2,4)])
t.linspace(0,1,5)
t.linspace(0,1,steps=5)
t.arange(0, 1, 0.25)
t.arange(start=0, end=5, step=2)
t.full((2,2), 3.14)
t.full([2], True)
t.eye(3)[t.tensor([0,2])]
t.tril(t.ones(3,3)).bool()
t.triu(t.ones(3,3), diagonal=1) == 1
t.ones(3,3).masked_fill(t.triu(t.ones(3,3), 1).bool(), float("-inf")).softmax(-1)
t.softmax(t.ones(2,3), dim=-1)
t.log_softmax(t.ones(2,3), dim=-1)
t.sigmoid(t.tensor([0.]))
t.tensor([[1,2],[3,4]]).t()
t.tensor([1,2]) @ t.tensor([3,4])
t.dot(t.tensor([1.,2.]), t.tensor([3.,4.]))
t.norm(t.tensor([3.,4.]))
t.norm(t.ones(2,2), p=2, dim=1)
t.ones(2,2).norm(dim=-1, keepdim=True)
t.sum(t.ones(2,3), dim=(0,1))
t.ones(2,3).sum(0, keepdim=True)
t.ones(2,3).mean([0,1])
t.std(t.tensor([1.,2.,3.]), unbiased=False)
t.var(t.tensor([1.,2.,3.]), dim=0, correction=0)
t.tensor([1.,2.,3.]).std(0)
t.prod(t.tensor([1,2,3]))
t.any(t.tensor([True,False]))
t.all(t.tensor([[True,False]]), dim=1)
t.argmax(t.tensor([1.,3.,2.]))
t.tensor([[1.,3.]]).argmax(dim=-1, keepdim=True)
t.argsort(t.tensor([3.,1.,2.]), descending=True)
t.sort(t.tensor([3.,1.,2.]), dim=0, descending=True)[0]
t.unique(t.tensor([3,1,1]), return_counts=True)[1]
t.bincount(t.tensor([0,1,1]), minlength=5)
t.histc(t.tensor([1.,2.,1.]), bins=4, min=0, max=3)
t.meshgrid(t.arange(2), t.arange(3), indexing="ij")[0]
t.meshgrid([t.arange(2), t.arange(3)], indexing="xy")[1]
t.cumsum(t.tensor([1,2,3]), dim=0)
t.cumprod(t.tensor([1.,2.,3.]), 0)
t.flip(t.arange(3), [0])
t.flip(t.arange(4).view(2,2), dims=(0,1))
t.roll(t.arange(4), 1)
t.roll(t.arange(4).view(2,2), shifts=(1,1), dims=(0,1))
t.chunk(t.arange(6), 3)[1]
t.split(t.arange(6), [1,2,3])[2]
t.arange(6).split(4)[1]
t.unbind(t.ones(2,3), dim=0)[0]
t.squeeze(t.ones(1,2,1)).shape
t.ones(2).unsqueeze(0).expand(3,-1).shape
t.ones(2,1).repeat(1,3)
t.ones(2).repeat(3)
t.tile(t.arange(2), (2,))
t.repeat_interleave(t.arange(2), 2)
t.gather(t.arange(6).view(2,3), 1, t.tensor([[0],[2]]))
t.take(t.arange(6), t.tensor([0,5]))
t.index_select(t.arange(6).view(2,3), 1, t.tensor([0,2]))
t.masked_select(t.arange(4), t.tensor([True,False,True,False]))
t.nonzero(t.tensor([0,1,1]))
t.nonzero(t.tensor([0,1,1]), as_tuple=True)[0]
t.tensor([0,1,1]).nonzero().squeeze()
t.isnan(t.tensor([float("nan")]))
t.isfinite(t.tensor([1., float("inf")])).all()
t.equal(t.ones(2), t.ones(2))
t.allclose(t.ones(2), t.ones(2)+1e-9)
t.tensor(3.).item()
t.tensor([1,2]).tolist()
t.from_numpy(np.ones(2, dtype=np.float32))
t.as_tensor(np.arange(3))
t.tensor(np.float32(3.))
t.ones(2).numpy()
np.asarray(t.ones(2))
np.array([t.tensor(1.), t.tensor(2.)])
t.ones(2, dtype=t.float64).dtype == t.double
t.ones(2).type(t.LongTensor)
t.ones(2).type(t.int32)
t.ones(2).type_as(t.zeros(1, dtype=t.float64))
t.ones(2).to(t.float16)
t.ones(2).to("cpu", t.float64)
t.ones(2).to(device="cpu", dtype=t.int64, non_blocking=True)
t.tensor([True, False]).sum()
t.tensor([1,2,3])[t.tensor([True,False,True])]
t.arange(12).view(3,4)[:, 1:3]
t.arange(12).view(3,4)[..., -1]
t.arange(12).view(3,4)[[0,2]]
t.arange(12).view(3,4)[[0,2],[1,3]]
t.arange(12).view(3,4)[t.arange(3), t.tensor([0,1,2])]
t.arange(12).view(3,4)[None].shape
t.arange(end=3)
t.arange(start=1, end=5, step=2)
t.tensor_split(t.arange(5), sections=2)[0]
t.Size([2,3]) + (1,)
t.Size([2,3])[0:1]
tuple(t.ones(2,3).shape)
t.ones(2,3).size()
t.ones(2,3).shape[-1]
len(t.ones(4))
[x.item() for x in t.arange(3)]
sum(t.arange(3))
float(t.tensor(2.5))
int(t.tensor(2))
bool(t.tensor(1))
abs(t.tensor([-1]))
-t.tensor([1.])
~t.tensor([True])
2 ** t.arange(3)
2 / t.tensor([1.,2.])
1 - t.tensor([1.,2.])
t.tensor([5]) // 2
t.tensor([-5]) % 3
t.tensor([5]) / 2
t.tensor([1,2]) == t.tensor([1,3])
t.tensor([1.,2.]).eq(1.)
t.logical_and(t.tensor([True]), t.tensor([False]))
t.tensor([1,2]) & 1
t.finfo(t.float32).eps
t.finfo(t.float16).max
t.iinfo(t.int64).max
t.is_tensor(t.ones(1))
t.get_default_dtype()
t.ones(1).device.type
t.device("cpu")
str(t.device("cpu"))
t.ones(1).is_cuda
t.ones(2, requires_grad=True).detach().cpu().numpy()
t.pow(t.tensor([2.]), 3)
t.pow(t.tensor([2.]), exponent=2)
t.tensor([4.]).sqrt().rsqrt()
t.exp(t.tensor([0.])).log1p().expm1()
t.floor(t.tensor([1.5])).int()
t.round(t.tensor([1.25]), decimals=1)
t.fmod(t.tensor([5.]), 3)
t.remainder(t.tensor([5.]), 3)
t.lerp(t.zeros(2), t.ones(2), 0.5)
t.addmm(t.zeros(2,2), t.ones(2,3), t.ones(3,2))
t.bmm(t.ones(1,2,3), t.ones(1,3,2))
t.matmul(t.ones(2,3), t.ones(3))
t.outer(t.ones(2), t.ones(3)).shape
t.cross(t.tensor([1.,0.,0.]), t.tensor([0.,1.,0.]), dim=0)
t.cdist(t.zeros(2,3), t.ones(2,3))
t.diag(t.ones(2))
t.diagonal(t.ones(2,2))
t.trace(t.ones(2,2))
t.clamp(t.tensor([1.,-1.]), 0, 1)
t.clamp(t.tensor([1.,-1.]), min=0)
t.relu(t.tensor([1.,-1.]))
t.tanh(t.tensor([0.]))
t.logsumexp(t.zeros(2,2), dim=1)
t.broadcast_to(t.ones(2), (3,2)).shape
t.broadcast_tensors(t.ones(2,1), t.ones(3))[0].shape
t.ones(2,3).flatten(1).shape
t.flatten(t.ones(2,3,4), start_dim=1).shape
t.unflatten(t.ones(2,6), 1, (2,3)).shape
t.movedim(t.ones(2,3,4), 0, -1).shape
t.swapaxes(t.ones(2,3), 0, 1).shape
t.transpose(t.ones(2,3), -2, -1).shape
t.ones(2,3).mT.shape
t.ones(3,2).T.shape
t.vstack([t.ones(2), t.ones(2)])
t.hstack([t.ones(2), t.ones(2)])
t.ones(2,3).new_zeros(2)
t.zeros_like(t.ones(2), dtype=t.long)
t.empty(2,3).fill_(1.)
t.zeros(2).copy_(t.ones(2))
t.ones(2).add_(1).mul_(2).sub_(1).div_(3)
t.ones(2).addcmul_(t.ones(2), t.ones(2), value=0.5)
t.ones(2).addcdiv_(t.ones(2), t.ones(2), value=-0.5)
t.ones(2).lerp_(t.zeros(2), 0.1)
t.ones(2).zero_()
t.searchsorted(t.tensor([1.,2.,3.]), t.tensor([2.]))
t.bucketize(t.tensor([2.]), t.tensor([1.,2.,3.]))
t.kthvalue(t.tensor([3.,1.,2.]), 2).values
t.median(t.tensor([3.,1.,2.]))
t.quantile(t.tensor([3.,1.,2.]), 0.5)
t.quantile(t.tensor([3.,1.,2.]), t.tensor([0.1,0.5]))
t.nanmean(t.tensor([1., float("nan")]))
t.nan_to_num(t.tensor([float("nan")]), nan=0.0)
t.count_nonzero(t.tensor([0,1]))
t.diff(t.tensor([1,3,6]))
t.combinations(t.arange(3), r=2)
f"{t.tensor(3)}"
t.manual_seed(0) is not None
t.Generator().manual_seed(3).initial_seed()
t.randperm(4).sort()[0]
t.randint(0, 10, (2,)).shape
t.randint(5, size=(2,)).shape
t.randint(high=5, size=(2,)).shape
t.normal(0., 1., size=(2,)).shape
t.normal(mean=t.zeros(3), std=t.ones(3)).shape
t.rand(2,3).shape
t.randn((2,3)).shape
t.rand_like(t.ones(2)).shape
t.bernoulli(t.ones(2))
t.empty(3).uniform_(1,1)
t.empty(2).normal_(0, 1).shape
t.multinomial(t.tensor([0.,1.]), 1)
t.set_grad_enabled(True) is not None
t.ones(2).data.shape
t.ones(2, requires_grad=True).grad is None
t.ones(1).is_leaf
t.autograd.grad((lambda x: (x**2).sum())(p), p)[0] if (p := t.ones(2, requires_grad=True)) is not None else 0
t.promote_types(t.int32, t.float32)
t.result_type(t.ones(1), 1)
t.can_cast(t.int32, t.float32)
t.vander(t.tensor([1.,2.]))
t.tensor_split(t.arange(5), 2)[0]
t.block_diag(t.ones(1,1), t.ones(2,2)).shape
t.triu_indices(3,3,offset=1)
t.special.expit(t.tensor([0.]))
t.hann_window(4)
t.tensor([1.0]).is_pinned()
t.index_put(t.zeros(3), (t.tensor([0]),), t.tensor([1.]))
t.tensor([1,2,3]).index_fill_(0, t.tensor([0]), -1)
t.scatter_reduce(t.zeros(2), 0, t.tensor([0,0,1]), t.ones(3), reduce="sum")
t.tensor([3.,4.]).dist(t.zeros(2))
t.renorm(t.ones(2,2), 2, 0, 1.0)
t.concat([t.ones(1), t.ones(1)])
t.argwhere(t.tensor([0,1]))
t.ones(2,2).amax(dim=(0,1))
t.amin(t.ones(2,2), 0)
t.logical_not(t.tensor([True]))
t.bitwise_and(t.tensor([3]), 1)
t.ones(2).bool().logical_not()
t.ones(3, 4).unfold(1, 2, 1).shape
t.as_strided(t.arange(4), (2,2), (1,1))
t.tensor([]).shape
t.tensor([[]]).shape
t.tensor(()).shape
t.ones(2).untyped_storage().nbytes()
t.ones(2).element_size() * t.ones(2).nelement()
t.einsum("ij,jk", t.ones(2,3), t.ones(3,2))
t.std_mean(t.tensor([1.,2.,3.]))[1]
t.tensor([1.,2.,3.]).mean(dim=0, dtype=t.float64)
t.ones(2,3).mean(-1, True)
t.ones(2, 3).sum(axis=1)
t.ones(2, 3).max(axis=1)[0]
t.maximum(t.ones(2), t.zeros(2))
t.max(t.ones(2), t.zeros(2))
t.ones(2).max(t.zeros(2))
t.minimum(t.ones(2), t.tensor(0.5))
t.tensor([1,2,3], dtype=t.int8).to(t.uint8)
t.tensor([1.0]).half().float()
t.tensor(5).new_tensor([1,2])
t.ones(1).ne(1).any()
t.randn(2,3).shape.numel()
t.zeros(2,3).stride()
t.zeros(1, 2)[0, 1].item()
t.empty((2,0)).numel()
t.ones(2).expand_as(t.ones(3,2)).shape
(t.ones(2) * np.float64(2)).dtype
(t.ones(2) * np.array([1.,2.])).dtype
(np.float32(2) * t.ones(2)).dtype
np.mean(t.ones(2).numpy())
t.tensor(1) in t.tensor([1,2])
t.ones(1).__class__.__name__
t.ones(1)[0].shape
t.clip(t.ones(1), 0, 2)
t.sum(t.ones(2,2), 1)
t.mean(t.ones(2,2), dim=1, keepdim=True)
t.inf, t.nan, t.pi
t.Tensor([1,2]).dtype
t.Tensor(2,3).shape
t.tensor([1.,2.]).logit().shape
t.zeros(3).index_copy_(0, t.tensor([0]), t.ones(1))
t.scalar_tensor(2.)
t.relu_(t.tensor([-1.]))
t.ones(3,3).tril_()
t.zeros(2).exponential_().shape
t.linalg.norm(t.ones(2,2))
t.linalg.inv(t.eye(2))
t.var_mean(t.ones(2,2), dim=[0,1])[0]
t.ones(2)[..., None].shape
t.ones(4,4)[1:3, 1:3].sum()
t.zeros(3).__setitem__(slice(0,2), 1.)
t.hypot(t.tensor([3.]), t.tensor([4.]))
t.atan2(t.ones(1), t.ones(1))
t.ones(2,3).reshape(-1, 1).shape
t.ones(2,3).reshape(shape=(3,2)).shape
t.ones(2,3).view(size=(3,2)).shape
t.zeros(2,3).permute(dims=(1,0)).shape
t.ones(2,1).expand(size=(2,3)).shape
t.ones(2,3).transpose(dim0=0, dim1=1).shape
t.randn(size=(2,3)).shape
t.zeros([2,3]).shape
t.zeros(t.Size([2,3])).shape
t.arange(3, dtype=t.float32, device="cpu", requires_grad=True).requires_grad
t.cat([t.ones(1), t.ones(1, dtype=t.float64)]).dtype
t.tensor([1,2]).float().std().item()
t.linspace(0, 1, 3, dtype=t.float64)
t.stack((t.ones(2), t.zeros(2)), dim=1).shape
t.stack((t.ones(2), t.zeros(2)), axis=1).shape
t.squeeze(t.ones(1,2), dim=0).shape
t.ones(2).unsqueeze(dim=0).shape
t.numel(t.ones(2))
t.is_floating_point(t.ones(2))
t.ones(2).apply_(lambda x: x + 1)
t.tensor([2.]).pow_(2)
t.corrcoef(t.tensor([[1.,2.],[2.,1.5]]))
t.cuda.is_available()
t.xpu.is_available()
""".strip().splitlines()


def shown(value):
    """A result in words that do not depend on who gave it."""
    if isinstance(value, tuple | list):
        return [shown(v) for v in value]
    if hasattr(value, "detach"):
        name = str(value.dtype).rpartition(".")[2]
        return name, tuple(value.shape), value.detach().double().numpy().round(5).tolist()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    return str(value).replace("norch", "torch")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LINES)
def test_same_with_the_import_changed(line):
    def run(t):
        t.manual_seed(0)
        return shown(eval(line, {"t": t, "np": np}))

    assert str(run(norch)) == str(run(torch))
