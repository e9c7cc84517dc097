"""Sines continued by LSTM cells, fitted by LBFGS with a closure, in float64."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

data = np.sin((np.arange(24)[None, :] + 5 * np.arange(6)[:, None]) / 4.0).astype("float64")


class Sequence(nn.Module):
    def __init__(self):
        super(Sequence, self).__init__()
        self.lstm1 = nn.LSTMCell(1, 6)
        self.lstm2 = nn.LSTMCell(6, 6)
        self.linear = nn.Linear(6, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 6, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 6, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 6, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 6, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


input, target = torch.tensor(data[2:, :-1]), torch.tensor(data[2:, 1:])
test_input, test_target = torch.tensor(data[:2, :-1]), torch.tensor(data[:2, 1:])
seq = Sequence()
seq.double()
fill(seq)
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.5, max_iter=5)
for i in range(3):
    print("STEP: ", i)

    def closure():
        optimizer.zero_grad()
        out = seq(input)
        loss = criterion(out, target)
        print(f"loss: {loss.item():.6f}")
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        future = 4
        pred = seq(test_input, future=future)
        loss = criterion(pred[:, :-future], test_target)
        print(f"test loss: {loss.item():.6f}", pred.detach().cpu().numpy().shape)
