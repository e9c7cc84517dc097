"""Embeddings that are near for what belongs together: triplets, pairs, weights set by apply, a plateau."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
        m.bias.data.fill_(0)
    elif classname.find("BatchNorm") != -1:
        nn.init.constant_(m.weight.data, 1.5)
        m.bias.data.zero_()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential()
        self.layers.add_module("fc1", nn.Linear(6, 12))
        self.layers.add_module("act", nn.PReLU())
        self.layers.add_module("bn", nn.BatchNorm1d(12))
        self.layers.add_module("fc2", nn.Linear(12, 4))

    def forward(self, x):
        return F.normalize(self.layers(x), p=2, dim=-1)


net = Net()
net.apply(weights_init)
print(net.layers.bn.weight.mean().item(), net.layers.fc1.bias.sum().item(), net.layers.fc1.weight.std().item() < 0.05)
fill(net)
with torch.no_grad():
    net.layers.bn.weight.copy_(torch.ones(12))
kinds = torch.arange(12) % 3
points = noise(3, 6).index_select(0, kinds) + 0.5 * noise(12, 6)
anchor, positive, negative = points[:3], points[3:6], points[[1, 2, 0]]
optimizer = torch.optim.NAdam(net.parameters(), lr=0.01)
scheduler = ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1, threshold=0.2)
triplet = nn.TripletMarginLoss(margin=0.5, p=2)
pairs = nn.CosineEmbeddingLoss(margin=0.1)
ranking = nn.MarginRankingLoss(margin=0.2)
for epoch in range(6):
    optimizer.zero_grad()
    a, p, n = net(anchor), net(positive), net(negative)
    loss = triplet(a, p, n) + pairs(torch.cat([a, a]), torch.cat([p, n]), torch.tensor([1, 1, 1, -1, -1, -1]))
    loss = loss + 0.1 * ranking(F.cosine_similarity(a, p), F.cosine_similarity(a, n), torch.ones(3))
    loss.backward()
    optimizer.step()
    scheduler.step(loss.item())
    print(f"{epoch} {loss.item():.5f} {optimizer.param_groups[0]['lr']:.5f}")
net.eval()
with torch.no_grad():
    embedded = net(points)
    distances = torch.cdist(embedded, embedded) + 10 * torch.eye(12)
    nearest = distances.argmin(dim=1)
    same = kinds[nearest] == kinds
print(f"{same.float().mean().item():.3f} {distances.min(dim=1).values.mean().item():.5f}")
