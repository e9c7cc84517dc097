"""A variational autoencoder with the reparameterisation trick."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(36, 20)
        self.fc21 = nn.Linear(20, 3)
        self.fc22 = nn.Linear(20, 3)
        self.fc3 = nn.Linear(3, 20)
        self.fc4 = nn.Linear(20, 36)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = noise(*std.shape)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 36))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(reconstructed, x, mu, logvar):
    bce = F.binary_cross_entropy(reconstructed, x.view(-1, 36), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


batch = (noise(16, 1, 6, 6) > 0).float()
model = VAE()
fill(model)
optimizer = optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(1, 9):
    model.train()
    optimizer.zero_grad()
    reconstructed, mu, logvar = model(batch)
    loss = loss_function(reconstructed, batch, mu, logvar)
    loss.backward()
    train_loss = loss.item()
    optimizer.step()
    print("====> Epoch: {} Average loss: {:.5f}".format(epoch, train_loss / len(batch)))
with torch.no_grad():
    sample = model.decode(noise(4, 3)).cpu()
    print(f"{sample.mean().item():.6f} {sample.view(4, 1, 6, 6).var().item():.7f}")
target = torch.randn_like(mu).mul(0).add(0.5)
normal = F.gaussian_nll_loss(mu.detach(), target, logvar.detach().exp())
print(f"{normal.item():.6f} {F.kl_div(F.log_softmax(mu, 1), F.softmax(target, 1), reduction='batchmean').item():.6f}")
