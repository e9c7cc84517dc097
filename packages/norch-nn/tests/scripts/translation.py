"""A sequence-to-sequence model: packed source, attention by bmm, teacher forcing, padding that does not count."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, SOS, EOS = 0, 1, 2


class Encoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=PAD)
        self.gru = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.merge = nn.Linear(2 * hidden, hidden)

    def forward(self, source, lengths):
        packed = pack_padded_sequence(self.embedding(source), lengths, batch_first=True, enforce_sorted=False)
        output, hidden = self.gru(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return self.merge(output), torch.tanh(self.merge(torch.cat([hidden[0], hidden[1]], dim=-1))).unsqueeze(0)


class Decoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.gru = nn.GRU(2 * hidden, hidden)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, token, hidden, memory, mask):
        scores = torch.bmm(memory, hidden.permute(1, 2, 0)).squeeze(2)
        weights = F.softmax(scores.masked_fill(~mask, -1e9), dim=-1)
        context = torch.einsum("bs,bsh->bh", weights, memory)
        output, hidden = self.gru(torch.cat([self.embedding(token), context], 1)[None], hidden)
        return self.out(output[0]), hidden, weights


words = [[5, 3, 7, 4], [6, 8], [3, 3, 9], [4]]
source = pad_sequence([torch.tensor(w) for w in words], batch_first=True, padding_value=PAD)
target = pad_sequence([torch.tensor([*reversed(w), EOS]) for w in words], batch_first=True, padding_value=PAD)
lengths = torch.tensor([len(w) for w in words])
mask = source != PAD
encoder, decoder = Encoder(10, 12), Decoder(10, 12)
fill(encoder)
fill(decoder, 1)
parameters = list(encoder.parameters()) + list(decoder.parameters())
optimizer = torch.optim.Adam(parameters, lr=1e-2)
criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum")

for iteration in range(6):
    optimizer.zero_grad()
    memory, hidden = encoder(source, lengths)
    token = torch.full((len(words),), SOS, dtype=torch.long)
    loss = 0
    for t in range(target.size(1)):
        logits, hidden, weights = decoder(token, hidden, memory, mask)
        loss += criterion(logits, target[:, t])
        token = target[:, t] if iteration % 2 == 0 else logits.topk(1)[1].squeeze(1).detach()
    (loss / mask.sum()).backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    print(f"{iteration} {loss.item() / mask.sum().item():.5f} {weights.max().item():.5f}")
print(encoder.embedding.weight[PAD].abs().sum().item() > 0, encoder.embedding.weight.grad[PAD].tolist() == [0.0] * 12)
