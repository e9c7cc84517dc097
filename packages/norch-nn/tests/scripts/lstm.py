"""A character model: an embedding, an LSTM, and the next character of each."""

import torch
from torch import nn, optim
from torch.nn.utils import clip_grad_norm_

text = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. "
vocabulary = sorted(set(text))
index = {c: i for i, c in enumerate(vocabulary)}
encoded = torch.tensor([index[c] for c in text], dtype=torch.long)


class CharModel(nn.Module):
    def __init__(self, vocab_size, embedding_dim=8, hidden_dim=16, num_layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, num_layers=num_layers, batch_first=True)
        self.head = nn.Linear(hidden_dim, vocab_size)
        self.hidden_dim, self.num_layers = hidden_dim, num_layers

    def forward(self, x, state=None):
        out, state = self.lstm(self.embedding(x), state)
        return self.head(out), state

    def init_hidden(self, batch):
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.num_layers, batch, self.hidden_dim),
            weight.new_zeros(self.num_layers, batch, self.hidden_dim),
        )


length, batch = 10, 4
windows = encoded.unfold(0, length + 1, length)[:8].reshape(2, batch, length + 1)
model = CharModel(len(vocabulary))
fill(model)
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=0.02)

for epoch in range(4):
    hidden = model.init_hidden(batch)
    for window in windows:
        hidden = tuple(h.detach() for h in hidden)
        inputs, targets = window[:, :-1], window[:, 1:]
        optimizer.zero_grad(set_to_none=True)
        logits, hidden = model(inputs, hidden)
        loss = criterion(logits.transpose(1, 2), targets)
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), max_norm=0.25)
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.5f} perplexity {torch.exp(loss).item():.4f} norm {norm.item():.5f}")

model.eval()
with torch.no_grad():
    current, state = encoded[:1].view(1, 1), None
    for _ in range(3):
        logits, state = model(current, state)
        current = logits[:, -1].argmax(-1, keepdim=True)
        print(f"top {logits[0, -1].max().item():.5f}")
gru = nn.GRU(8, 4, bidirectional=True)
fill(gru)
output, last = gru(noise(5, 2, 8))
print(tuple(output.shape), tuple(last.shape), f"{output.sum().item():.5f} {last.pow(2).mean().item():.6f}")
