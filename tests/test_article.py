"""What the article "Recreating PyTorch from Scratch" does with PyTorch or with its own norch works with this one."""

import ctypes
import math
import re

import pytest

import norch
import norch.nn as nn
import norch.optim as optim


def internal(t):
    """The buffer behind a tensor, read through its address."""
    return norch.frombuffer(ctypes.string_at(t.data_ptr(), t.storage().nbytes()), dtype=t.dtype)


def test_shapes_and_strides():
    assert norch.rand([5, 4, 8]).stride() == (32, 8, 1)
    t = norch.rand([5, 4, 8])
    reshaped = t.reshape([4, 5, 2, 2, 2])
    assert list(t.shape) == [5, 4, 8]
    assert list(reshaped.shape) == [4, 5, 2, 2, 2]
    assert reshaped.stride() == (40, 8, 4, 2, 1)
    assert internal(reshaped).tolist() == internal(t).tolist() == t.flatten().tolist()


def test_a_transposed_tensor_keeps_its_buffer():
    t = norch.arange(0, 24).reshape(2, 3, 4)
    swapped = t.transpose(0, 1)
    assert t.stride() == (12, 4, 1)
    assert list(swapped.shape) == [3, 2, 4]
    assert swapped.stride() == (4, 12, 1)
    assert internal(t).tolist() == internal(swapped).tolist() == list(range(24))
    assert t.is_contiguous()
    assert not swapped.is_contiguous()
    packed = swapped.contiguous()
    assert packed.is_contiguous()
    assert packed.tolist() == swapped.tolist()
    assert internal(packed).tolist() == [
        12 * block + 4 * row + i for row in range(3) for block in range(2) for i in range(4)
    ]


def test_addition():
    a = norch.Tensor([[1, 2, 3], [3, 2, 1]]).to("cpu")
    b = norch.Tensor([[3, 2, 1], [1, 2, 3]]).to("cpu")
    assert (a + b)[0, 0] == 4
    assert (a + b).tolist() == [[4.0] * 3] * 2


def test_autograd():
    x = norch.tensor([[1.0, 2, 3], [3.0, 2, 1]], requires_grad=True)
    y = norch.tensor([[3.0, 2, 1], [1.0, 2, 3]], requires_grad=True)
    loss = ((x - y) ** 3).sum()
    loss.backward()
    assert x.grad.tolist() == [[12.0, 0.0, 12.0]] * 2
    assert y.grad.tolist() == [[-12.0, 0.0, -12.0]] * 2


class ArticleModel(nn.Module):
    def __init__(self):
        super(ArticleModel, self).__init__()  # noqa: UP008 - as the article spells it
        self.fc1 = nn.Linear(1, 10)
        self.sigmoid = nn.Sigmoid()
        self.fc2 = nn.Linear(10, 1)

    def forward(self, x):
        return self.fc2(self.sigmoid(self.fc1(x)))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_training(seed):
    norch.manual_seed(seed)
    device = "cpu"
    points = [(0.4 * i, math.sin(0.4 * i) ** 2) for i in range(51)]
    model = ArticleModel().to(device)
    criterion = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    loss_list, lines, means = [], [], []
    for epoch in range(10):
        total = 0.0
        for x, target in points:
            x = norch.Tensor([[x]]).T
            target = norch.Tensor([[target]]).T
            x = x.to(device)
            target = target.to(device)
            outputs = model(x)
            loss = criterion(outputs, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss)
        lines.append(f"Epoch [{epoch + 1}/10], Loss: {loss[0]:.4f}")
        loss_list.append(loss[0])
        means.append(total / len(points))
    assert all(re.fullmatch(r"Epoch \[\d+/10\], Loss: \d\.\d{4}", line) for line in lines)
    assert all(loss.shape == () for loss in loss_list)
    assert means[-1] < means[0]
    assert means[-1] == pytest.approx(0.13, abs=0.02)
    assert float(loss_list[-1]) == pytest.approx(0.13, abs=0.06)  # the last point's alone, as the article prints it
