"""Gradients gathered over small batches, clipped; a running average of the weights; early stopping."""

import copy

import torch
import torch.nn as nn

model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.BatchNorm1d(12), nn.Dropout(p=0.0), nn.Linear(12, 4))
fill(model)
average = copy.deepcopy(model)
for p in average.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 0.5, 1.0]))
inputs, labels = noise(48, 6), torch.arange(48) % 4
accumulation_steps = 4

best, best_state, patience = float("inf"), None, 0
for epoch in range(5):
    total = torch.zeros(())
    for i, (x, y) in enumerate(zip(inputs.split(6), labels.split(6))):
        loss = criterion(model(x), y) / accumulation_steps
        loss.backward()
        total += loss.detach()
        if (i + 1) % accumulation_steps == 0:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            nn.utils.clip_grad_value_(model.parameters(), clip_value=0.05)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters()):
                    slow.mul_(0.9).add_(fast, alpha=0.1)
                for slow, fast in zip(average.buffers(), model.buffers()):
                    slow.copy_(fast)
    average.eval()
    with torch.inference_mode():
        check = criterion(average(inputs), labels).item()
    print(f"{epoch} {total.item():.6f} {norm.item():.6f} {check:.6f}")
    if check < best:
        best, best_state = check, copy.deepcopy(model.state_dict())
    else:
        patience += 1
model.load_state_dict(best_state)
vector = nn.utils.parameters_to_vector(model.parameters())
print(tuple(vector.shape), f"{vector.norm().item():.5f} {best:.5f} {patience}")
