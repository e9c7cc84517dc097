"""A small language model of transformer layers, with a causal mask, warm-up and tied weights."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class LanguageModel(nn.Module):
    def __init__(self, ntoken=11, d_model=16, nhead=4, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(ntoken, d_model)
        self.position = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.decoder = nn.Linear(d_model, ntoken, bias=False)
        self.decoder.weight = self.embedding.weight
        self.d_model = d_model

    def forward(self, src):
        mask = torch.triu(torch.full((src.size(1), src.size(1)), float("-inf")), diagonal=1)
        x = self.position(self.embedding(src) * math.sqrt(self.d_model))
        return self.decoder(self.encoder(x, mask=mask))


tokens = (torch.arange(60).reshape(4, 15) ** 2 + torch.arange(60).reshape(4, 15)) % 11
model = LanguageModel()
fill(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
for step in range(6):
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print(f"{step} loss {loss.item():.5f} ppl {math.exp(loss.item()):.4f} lr {scheduler.get_last_lr()[0]:.5f}")
print(len(list(model.parameters())), sum(p.numel() for p in model.parameters()))
attention = nn.MultiheadAttention(16, 4, batch_first=True)
fill(attention)
query = noise(2, 3, 16)
output, weights = attention(query, query, query)
print(tuple(output.shape), tuple(weights.shape), f"{output.sum().item():.5f} {weights[0, 0, 0].item():.6f}")
