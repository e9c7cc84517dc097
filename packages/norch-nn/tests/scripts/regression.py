"""A cubic through a sine, first with tensors alone, then with modules, in float64."""

import math

import torch

dtype = torch.float64
x = torch.linspace(-math.pi, math.pi, 200, dtype=dtype)
y = torch.sin(x)

a = torch.tensor(0.1, dtype=dtype, requires_grad=True)
b = torch.tensor(0.2, dtype=dtype, requires_grad=True)
c = torch.full((), -0.1, dtype=dtype, requires_grad=True)
d = torch.zeros((), dtype=dtype, requires_grad=True)
rate = 1e-5
for step in range(100):
    predicted = a + b * x + c * x**2 + d * x**3
    loss = (predicted - y).pow(2).sum()
    if step % 25 == 0:
        print(step, loss.item())
    loss.backward()
    with torch.no_grad():
        for w in (a, b, c, d):
            w -= rate * w.grad
            w.grad = None
print(f"{a.item():.8f} {b.item():.8f} {c.item():.8f} {d.item():.8f}")

powers = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1)).double()
fill(model)
criterion = torch.nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(60):
    loss = criterion(model(powers), y)
    if step % 20 == 0:
        print(step, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
layer = model[0]
print(layer.bias.item(), layer.weight[:, 0].item(), layer.weight[:, 1].item(), layer.weight[:, 2].item())

# Normal equations, Newton's method and higher derivatives.
gram = powers.T @ powers
solution = torch.linalg.solve(gram, powers.T @ y)
print(*solution.tolist())
z = torch.tensor([0.5, 1.5], dtype=dtype, requires_grad=True)
f = (z**3).sum() * torch.exp(z[0])
(first,) = torch.autograd.grad(f, z, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), z)
print(*first.tolist(), *second.tolist())
