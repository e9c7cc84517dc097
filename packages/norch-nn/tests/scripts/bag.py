"""Sentences of different lengths, summed as bags of words: a collate_fn with offsets."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataset import random_split

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
sentences = [
    ("good great fine", 1), ("bad awful", 0), ("great movie", 1), ("awful plot bad movie", 0), ("fine plot", 1),
    ("bad", 0), ("good good movie", 1), ("awful awful plot", 0),
]  # fmt: skip
vocabulary = {word: i for i, word in enumerate(sorted({w for text, _ in sentences for w in text.split()}))}


def collate_batch(batch):
    label_list, text_list, offsets = [], [], [0]
    for text, label in batch:
        label_list.append(int(label))
        processed = torch.tensor([vocabulary[w] for w in text.split()], dtype=torch.int64)
        text_list.append(processed)
        offsets.append(processed.size(0))
    label_list = torch.tensor(label_list, dtype=torch.int64)
    offsets = torch.tensor(offsets[:-1]).cumsum(dim=0)
    return label_list.to(device), torch.cat(text_list).to(device), offsets.to(device)


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
        self.fc = nn.Linear(embed_dim, num_class)
        self.init_weights()

    def init_weights(self):
        initrange = 0.5
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.fc.weight.data.uniform_(-initrange, initrange)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


model = TextClassificationModel(len(vocabulary), 6, 2).to(device)
fill(model)
first, second = random_split(sentences, [6, 2], generator=torch.Generator().manual_seed(42))
print(len(first), len(second))
dataloader = DataLoader(sentences, batch_size=3, shuffle=False, collate_fn=collate_batch)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
total_accu = None
for epoch in range(1, 6):
    model.train()
    total_acc, total_count = 0, 0
    for label, text, offsets in dataloader:
        optimizer.zero_grad()
        predicted_label = model(text, offsets)
        loss = criterion(predicted_label, label)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        total_acc += (predicted_label.argmax(1) == label).sum().item()
        total_count += label.size(0)
    accu_val = total_acc / total_count
    if total_accu is not None and total_accu > accu_val:
        scheduler.step()
    else:
        total_accu = accu_val
    print("| epoch {:3d} | accuracy {:8.3f} | loss {:.6f} | lr {}".format(
        epoch, accu_val, loss.item(), optimizer.param_groups[0]["lr"] > 1
    ))  # fmt: skip
