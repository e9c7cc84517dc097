"""A generator and a discriminator with an optimiser each, and a gradient penalty."""

import torch
import torch.nn as nn

G = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
fill(G)
fill(D)
criterion = nn.BCEWithLogitsLoss()
optimizerG = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerD = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
real_label, fake_label = 1.0, 0.0
real = noise(16, 2) * 0.5 + torch.tensor([1.0, -1.0])

for step in range(6):
    D.zero_grad()
    label = torch.full((16,), real_label, dtype=torch.float)
    output = D(real).view(-1)
    loss_real = criterion(output, label)
    loss_real.backward()
    d_x = output.sigmoid().mean().item()

    fake = G(noise(16, 4))
    label.fill_(fake_label)
    output = D(fake.detach()).view(-1)
    loss_fake = criterion(output, label)
    loss_fake.backward()

    mix = torch.rand(16, 1) * 0 + 0.3
    between = (mix * real + (1 - mix) * fake.detach()).requires_grad_(True)
    scores = D(between)
    gradients = torch.autograd.grad(
        outputs=scores, inputs=between, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True
    )[0]
    penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
    (0.1 * penalty).backward()
    optimizerD.step()

    G.zero_grad()
    label.fill_(real_label)
    output = D(fake).view(-1)
    loss_g = criterion(output, label)
    loss_g.backward()
    optimizerG.step()
    print(
        "[%d] Loss_D: %.5f Loss_G: %.5f D(x): %.5f penalty: %.5f"
        % (step, (loss_real + loss_fake).item(), loss_g.item(), d_x, penalty.item())
    )
