"""Frames to letters without alignment: convolutions, a bidirectional GRU and CTC."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Recogniser(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(features, 12, kernel_size=3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.SiLU()
        )
        self.rnn = nn.GRU(12, 8, num_layers=1, bidirectional=True)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = self.conv(x).permute(2, 0, 1)
        x, _ = self.rnn(x)
        return F.log_softmax(self.fc(x), dim=2)


def decode(log_probs):
    path = log_probs.argmax(dim=-1).transpose(0, 1)
    texts = []
    for row in path:
        collapsed = torch.unique_consecutive(row)
        texts.append(collapsed[collapsed != 0].tolist())
    return texts


frames = noise(4, 5, 24)
targets = torch.tensor([[1, 2, 3], [2, 2, 0], [3, 1, 1], [4, 0, 0]])
target_lengths = torch.tensor([3, 2, 3, 1])
for n in range(4):
    for i, letter in enumerate(targets[n, : target_lengths[n]].tolist()):
        frames[n, letter, 6 * i : 6 * i + 6] += 3.0
model = Recogniser(5, 5)
fill(model)
criterion = nn.CTCLoss(blank=0, zero_infinity=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.9, eps=1e-5)
for epoch in range(8):
    log_probs = model(frames)
    input_lengths = torch.full(size=(4,), fill_value=log_probs.size(0), dtype=torch.long)
    loss = criterion(log_probs, targets, input_lengths, target_lengths)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    print(f"epoch {epoch}: {loss.item():.5f}")
flat = torch.cat([t[:n] for t, n in zip(targets, target_lengths.tolist())])
with torch.no_grad():
    log_probs = model(frames)
    each = F.ctc_loss(log_probs, flat, (12, 12, 12, 12), (3, 2, 3, 1), reduction="none")
print(" ".join(f"{v:.4f}" for v in each), len(decode(log_probs)))
