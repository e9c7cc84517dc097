"""Datasets, a loader, a scheduler, and validation by a split."""

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset


class Waves(Dataset):
    def __init__(self, count, transform=None):
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, idx):
        if torch.is_tensor(idx):
            idx = idx.tolist()
        x = torch.arange(8, dtype=torch.float32) / 8 + idx / self.count
        sample = {"x": torch.sin(6 * x), "y": torch.tensor([float(idx % 3)])}
        return self.transform(sample) if self.transform else sample


def double(sample):
    return {"x": sample["x"] * 2, "y": sample["y"]}


dataset = Waves(20, transform=double)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
fill(model)
loader = DataLoader(dataset, batch_size=6, shuffle=False, num_workers=0)
print(len(loader), len(dataset))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
criterion = nn.HuberLoss()
for epoch in range(5):
    running_loss = 0.0
    for i, batch in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    scheduler.step()
    print(f"[{epoch}, {i}] loss: {running_loss / len(loader):.6f} lr: {scheduler.get_last_lr()[0]:.5f}")

inputs, targets = noise(10, 8), noise(10, 1)
pairs = ConcatDataset([TensorDataset(inputs, targets), TensorDataset(-inputs, targets)])
train = DataLoader(Subset(pairs, range(16)), batch_size=5, drop_last=True)
valid = DataLoader(Subset(pairs, range(16, 20)), batch_size=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = CosineAnnealingLR(optimizer, T_max=4)
for epoch in range(4):
    for x, y in train:
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    with torch.no_grad():
        errors = [nn.functional.mse_loss(model(x), y).item() for x, y in valid]
    print(f"{loss.item():.6f} {sum(errors) / len(errors):.6f} {optimizer.param_groups[0]['lr']:.6f}")

seen = torch.cat([y for _, y in DataLoader(TensorDataset(inputs, torch.arange(10)), batch_size=3, shuffle=True)])
print(sorted(seen.tolist()))
