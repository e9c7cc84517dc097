"""Silero VAD's layers at 16 kHz, in the order of its published weights."""

from __future__ import annotations

import norch
import norch.nn.functional as F
from norch import nn

CONTEXT = 64
"""Samples of the chunk before that each is read with."""


class VoiceActivity(nn.Module):
    """From chunks (N, 512), one after the other, to how likely each holds speech, (N, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)
        self.reset_states()

    def reset_states(self) -> None:
        """Begins another recording."""
        self.state: tuple[norch.Tensor, norch.Tensor] | None = None
        self.context = norch.zeros(1, CONTEXT)

    def forward(self, chunk: norch.Tensor, rate: int = 16_000) -> norch.Tensor:
        x = norch.cat([self.context, chunk], 1)
        self.context = x[:, -CONTEXT:]
        x = self.stft_conv(F.pad(x, (0, 64), "reflect").unsqueeze(1))
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(convolution(x))
        self.state = self.lstm_cell(x.squeeze(-1), self.state)
        return self.final_conv(F.relu(self.state[0]).unsqueeze(-1)).sigmoid().squeeze(1)
