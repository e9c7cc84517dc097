"""A convolutional autoencoder, and one of linear layers whose code is sparse."""

import torch
import torch.nn as nn


class ConvAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(4, 8, 3, stride=2, padding=1),
            nn.ELU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 4, 2, stride=2), nn.ReLU(True), nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1),
            nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        return self.decoder(self.encoder(x))


data = torch.sigmoid(noise(8, 1, 8, 8))
model = ConvAutoencoder()
fill(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-2)
criterion = nn.MSELoss()
for epoch in range(5):
    reconstructed = model(data)
    loss = criterion(reconstructed, data)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("epoch [{}/{}], loss:{:.6f}".format(epoch + 1, 5, loss.item()))

encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Softplus(), nn.LayerNorm(16))
decoder = nn.Sequential(nn.Linear(16, 64), nn.Hardsigmoid(), nn.Unflatten(1, (1, 8, 8)))
for part in (encoder, decoder):
    fill(part)
optimizer = torch.optim.Adagrad(
    [{"params": encoder.parameters()}, {"params": decoder.parameters(), "lr": 0.02}], lr=0.05
)
huber = nn.SmoothL1Loss()
for epoch in range(5):
    code = encoder(data)
    loss = huber(decoder(code), data) + 1e-3 * code.abs().sum(dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f} {torch.norm(code).item():.5f} {code.std(dim=0).mean():.5f}")
