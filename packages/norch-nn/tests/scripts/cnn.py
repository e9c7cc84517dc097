"""A convolutional classifier of small pictures of bars."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if inside != outside or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)) + self.shortcut(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding="same")
        self.blocks = nn.ModuleList([Block(4, 4), Block(4, 8, stride=2)])
        self.pool = nn.MaxPool2d(2, 2)
        self.dropout = nn.Dropout2d(0.0)
        self.gap = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        x = self.pool(F.relu(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        x = self.dropout(x)
        x = self.gap(x)
        x = x.view(x.size(0), -1)
        return F.log_softmax(self.fc(x), dim=1)


images = noise(24, 1, 12, 12) * 0.3
targets = torch.arange(24) % 2
for i in range(24):
    if targets[i] == 0:
        images[i, 0, i % 10 : i % 10 + 2, :] += 1.0
    else:
        images[i, 0, :, i % 10] += 1.0

model = Net()
fill(model)
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        nn.init.ones_(m.weight)
        nn.init.zeros_(m.bias)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def train(epoch):
    model.train()
    total = 0.0
    for batch in range(0, len(images), 8):
        data, target = images[batch : batch + 8], targets[batch : batch + 8]
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        total += loss.item() * data.size(0)
    print("Train Epoch: {} loss {:.6f}".format(epoch, total / len(images)))


def test():
    model.eval()
    with torch.no_grad():
        output = model(images)
        loss = F.nll_loss(output, targets, reduction="sum").item()
        predicted = output.argmax(dim=1, keepdim=True)
        correct = predicted.eq(targets.view_as(predicted)).sum().item()
    print("Test {:.6f} {}/{}".format(loss / len(images), correct, len(images)))


for epoch in range(1, 4):
    train(epoch)
    test()
for name, value in model.state_dict().items():
    print(name, tuple(value.shape), "{:.5f}".format(value.double().abs().mean().item()))
