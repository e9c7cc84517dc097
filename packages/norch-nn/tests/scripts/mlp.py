"""A classifier of points in a plane: three spirals."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self, hidden=32, classes=3):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(2, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = torch.tanh(self.fc2(x))
        return self.out(x)


n = 30
angle = torch.linspace(0, 4, n)
points, labels = [], []
for k in range(3):
    turned = angle + 2 * torch.pi * k / 3
    radius = angle / 4
    points.append(torch.stack((radius * torch.cos(turned), radius * torch.sin(turned)), dim=1))
    labels.append(torch.full((n,), k, dtype=torch.long))
x = torch.cat(points, dim=0).to(device)
y = torch.cat(labels).to(device)

model = Net().to(device)
fill(model)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-4)

for epoch in range(20):
    model.train()
    optimizer.zero_grad()
    outputs = model(x)
    loss = criterion(outputs, y)
    loss.backward()
    optimizer.step()
    if (epoch + 1) % 4 == 0:
        print(f"Epoch {epoch + 1}, loss {loss.item():.6f}")

model.eval()
with torch.no_grad():
    _, predicted = torch.max(model(x).data, 1)
    correct = (predicted == y).sum().item()
    confidence = F.softmax(model(x), dim=1).max(dim=1).values.mean()
print(f"accuracy {100.0 * correct / y.size(0):.2f}, confidence {float(confidence):.6f}")
print("parameters", sum(p.numel() for p in model.parameters() if p.requires_grad))
