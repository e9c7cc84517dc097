"""Functions with derivatives of their own, hooks, and gradients of many kinds."""

import torch
import torch.nn as nn


class Legendre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


class Step(torch.autograd.Function):
    """A sign with the gradient of the identity near 0."""

    @staticmethod
    def forward(ctx, x, width):
        ctx.save_for_backward(x)
        ctx.width = width
        return torch.sign(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return (grad.masked_fill(x.abs() > ctx.width, 0) if ctx.needs_input_grad[0] else None), None


class Binary(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, 5))
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps += 1
        return self.scale * nn.functional.linear(x, Step.apply(self.weight, 0.8))

    def extra_repr(self):
        return "3 by 5"


x = torch.linspace(-1, 1, 9, requires_grad=True)
y = Legendre.apply(x)
y.sum().backward()
print(*[f"{v:.5f}" for v in x.grad.tolist()])
double = torch.linspace(-0.9, 0.9, 4, dtype=torch.double, requires_grad=True)
print(torch.autograd.gradcheck(Legendre.apply, (double,)))

model = Binary()
fill(model)
seen = []
handle = model.register_forward_hook(lambda module, args, output: seen.append(output.detach().mean().item()))
model.weight.register_hook(lambda grad: grad * 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs, target = noise(6, 5), noise(6, 3)
for _ in range(4):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), target)
    loss.backward()
    print(f"{loss.item():.6f} {model.weight.grad.norm().item():.6f} {model.scale.grad.item():.6f}")
    optimizer.step()
handle.remove()
model(inputs)
print(len(seen), f"{sum(seen):.5f}", int(model.steps.item()))
print(model)

w = torch.ones(2, 2, requires_grad=True)
v = w * 3
v.retain_grad()
(v * v).sum().backward(retain_graph=True)
(v * v).sum().backward()
print(v.grad.tolist(), w.grad.sum().item(), v.grad_fn is not None, w.is_leaf, v.is_leaf)
with torch.enable_grad(), torch.no_grad():
    print((w * 2).requires_grad)
