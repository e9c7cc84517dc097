"""Attention, recurrent layers and alignments."""

from __future__ import annotations

from typing import Any

from .inputs import Op, sources


def rows(op: Op, lib: Any, device: str) -> None:
    normal, uniform, integers = sources(lib, device)
    functional = lib.nn.functional
    op(
        "sdpa causal bf16",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda: normal(8, 12, 1024, 64).bfloat16(),
        lambda: normal(8, 12, 1024, 64).bfloat16(),
        lambda: normal(8, 12, 1024, 64).bfloat16(),
    )
    op(
        "sdpa mask bf16",
        lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
        lambda: normal(8, 12, 512, 64).bfloat16(),
        lambda: normal(8, 12, 512, 64).bfloat16(),
        lambda: normal(8, 12, 512, 64).bfloat16(),
        lambda: uniform(8, 1, 512, 512).gt(0.1),
    )
    op(
        "sdpa f32",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        lambda: normal(8, 12, 512, 64),
        lambda: normal(8, 12, 512, 64),
        lambda: normal(8, 12, 512, 64),
    )
    op(
        "sdpa f32 bias",
        lambda q, k, v, b: functional.scaled_dot_product_attention(q, k, v, attn_mask=b),
        lambda: normal(64, 6, 49, 32),
        lambda: normal(64, 6, 49, 32),
        lambda: normal(64, 6, 49, 32),
        lambda: normal(1, 6, 49, 49),
    )
    op(
        "sdpa d 96 f16",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        lambda: normal(8, 8, 512, 96).half(),
        lambda: normal(8, 8, 512, 96).half(),
        lambda: normal(8, 8, 512, 96).half(),
    )
    op(
        "sdpa d 256 bf16",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda: normal(8, 8, 512, 256).bfloat16(),
        lambda: normal(8, 8, 512, 256).bfloat16(),
        lambda: normal(8, 8, 512, 256).bfloat16(),
    )
    op(
        "sdpa gqa",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        lambda: normal(4, 16, 1024, 64).bfloat16(),
        lambda: normal(4, 4, 1024, 64).bfloat16(),
        lambda: normal(4, 4, 1024, 64).bfloat16(),
    )
    op(
        "sdpa decode",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        lambda: normal(8, 32, 1, 128).bfloat16(),
        lambda: normal(8, 8, 4096, 128).bfloat16(),
        lambda: normal(8, 8, 4096, 128).bfloat16(),
        grad=False,
    )

    def layer(made: Any, last: bool = True) -> Any:
        """What a layer makes of its input, its last result alone unless `last` is False."""
        made = made.to(device)
        return (lambda x: made(x)[0]) if last else made

    nn, sequences = lib.nn, {"batch_first": True}
    attention = nn.MultiheadAttention(256, 8, batch_first=True).to(device)
    op("multi_head_attention", lambda x: attention(x, x, x, need_weights=False)[0], lambda: normal(16, 256, 256))
    op("multi_head_attention weights", lambda x: attention(x, x, x)[0], lambda: normal(16, 256, 256))
    encoder = layer(nn.TransformerEncoderLayer(256, 8, 1024, **sequences), last=False)
    op("TransformerEncoderLayer", encoder, lambda: normal(16, 256, 256))
    op("LSTM 1x1024", layer(nn.LSTM(1024, 1024, **sequences)), lambda: normal(32, 64, 1024))
    twice = layer(nn.LSTM(256, 256, 2, bidirectional=True, **sequences))
    op("LSTM bi 256", twice, lambda: normal(32, 100, 256))
    op("GRU 256", layer(nn.GRU(256, 256, **sequences)), lambda: normal(32, 100, 256))
    op("RNN 256", layer(nn.RNN(256, 256, **sequences)), lambda: normal(32, 100, 256))
    cell = nn.LSTMCell(256, 256).to(device)

    def steps(x: Any) -> Any:
        state = None
        for step in x.unbind(0):
            state = cell(step, state)
        return state[0]

    op("LSTMCell 20 steps", steps, lambda: normal(20, 64, 256))
    op(
        "ctc",
        lambda x, t: functional.ctc_loss(
            x, t, lib.full((16,), 200, dtype=lib.long), lib.full((16,), 30, dtype=lib.long)
        ),
        lambda: normal(200, 16, 64).log_softmax(-1),
        lambda: 1 + integers(63, 16, 30),
    )
