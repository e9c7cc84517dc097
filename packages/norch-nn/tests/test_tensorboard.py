"""norch.utils.tensorboard: the events are read back."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import norch
from norch import nn
from norch.utils.tensorboard import SummaryWriter

pytestmark = pytest.mark.usefixtures("on_host")

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
graph_pb2 = pytest.importorskip("tensorboardX.proto.graph_pb2")


def events(folder):
    """Of each file below: records of a length of 8 bytes, its sum of 4, the event, and its sum."""
    found = []
    for path in sorted(Path(folder).rglob("events.out.tfevents*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = event_pb2.Event()
            event.ParseFromString(data[12 : 12 + length])
            found.append(event)
            data = data[16 + length :]
    return found


def values(folder):
    return {(v.tag, event.step): v for event in events(folder) for v in event.summary.value}


def test_its_methods_are_those_of_the_class(tmp_path):
    class Quiet(SummaryWriter):
        def add_text(self, tag, *args):
            super().add_text("quiet/" + tag, *args)

    assert callable(SummaryWriter.close)
    with Quiet(tmp_path) as writer:
        writer.add_text("a", "b", 1)
    assert list(values(tmp_path)) == [("quiet/a/text_summary", 1)]


def test_scalars(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        assert writer.get_logdir() == writer.log_dir == str(tmp_path)
        writer.add_scalar("loss", norch.tensor(0.5, requires_grad=True), 1)
        writer.add_scalar("loss", norch.tensor([0.25], dtype=norch.bfloat16), 2)
        writer.add_scalar("rate", 3, global_step=7, new_style=True)
        writer.add_scalars("both", {"a": norch.tensor(1.5), "b": 2}, 0)
    found = values(tmp_path)
    assert [found["loss", 1].simple_value, found["loss", 2].simple_value, found["rate", 7].simple_value] == [
        0.5,
        0.25,
        3,
    ]
    assert sorted(v.simple_value for e in events(tmp_path) for v in e.summary.value) == [0.25, 0.5, 1.5, 2, 3]


def test_images_histograms_and_text(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    picture = norch.zeros(3, 4, 5)
    picture[1] = 1.0
    with SummaryWriter(log_dir=str(tmp_path)) as writer:
        writer.add_image("picture", picture, 1)
        writer.add_images("pictures", norch.rand(4, 1, 6, 6), 1)
        writer.add_histogram("weights", norch.arange(100.0), 2)
        writer.add_tensor("tensor", norch.ones(3), 0)
        writer.add_text("note", "**hello**", 3)
        writer.flush()
    found = values(tmp_path)
    image = found["picture", 1].image
    assert (image.height, image.width) == (4, 5)
    with open(tmp_path / "picture.png", "wb") as file:
        file.write(image.encoded_image_string)
    with image_module.open(tmp_path / "picture.png") as decoded:
        assert np.asarray(decoded)[0, 0].tolist() == [0, 255, 0]
    histogram = found["weights", 2].histo
    assert (histogram.num, histogram.sum, histogram.min, histogram.max) == (100, 4950, 0, 99)
    assert found["tensor", 0].histo.num == 3
    assert found["note/text_summary", 3].tensor.string_val == [b"**hello**"]


def test_hyperparameters(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"rate": 0.1, "kind": "adam"}, {"accuracy": norch.tensor(0.75)}, run_name="first")
    assert (tmp_path / "first").is_dir()
    assert values(tmp_path / "first")["accuracy", 0].simple_value == 0.75
    tags = {value.tag for event in events(tmp_path) for value in event.summary.value}
    assert {"_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"} <= tags


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x) + 1).softmax(-1)


def test_the_graph_of_a_model(tmp_path, capsys):
    model, x = Net(), norch.ones(1, 3)
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, x, verbose=True)
    assert 'name: "Net/body/0/weight"' in capsys.readouterr().out
    (data,) = [event.graph_def for event in events(tmp_path) if event.graph_def]
    graph = graph_pb2.GraphDef()
    graph.ParseFromString(data)
    nodes = {node.name: node for node in graph.node}
    assert {"input/0", "output/0", "Net/body/1/relu_1", "Net/head/weight", "Net/head/bias"} <= set(nodes)
    (shape,) = nodes["Net/body/0/weight"].attr["_output_shapes"].list.shape
    assert [dim.size for dim in shape.dim] == [4, 3]
    assert all(name in nodes for node in graph.node for name in node.input)
    behind, stack = set(), ["output/0"]
    while stack:
        name = stack.pop()
        behind.add(name)
        stack += nodes[name].input
    assert behind == set(nodes)
    assert model.body[0]._hooks is None or not any(vars(model.body[0]._hooks).values())
    assert not x.requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_a_graph_changes_nothing_of_the_model(tmp_path):
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Sequential(nn.Linear(2, 2).eval()))
    state = norch.get_rng_state()
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, norch.ones(3, 2) * 5)
    assert model[0].running_mean.tolist() == [0, 0]
    assert model[0].num_batches_tracked == 0
    assert norch.equal(norch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == [True, True, True, True, False]


def test_a_model_without_a_graph(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="input_to_model is needed"):
            writer.add_graph(Net())
        with pytest.raises(ValueError, match="recorded nothing"):
            writer.add_graph(nn.Identity(), norch.ones(2, dtype=norch.int64))


def test_methods_are_listed_and_others_are_not_there(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        assert {"add_embedding", "add_scalar", "close"} <= set(dir(writer))
        with pytest.raises(AttributeError):
            writer.add_nothing(1)


def test_without_tensorboardx_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install norch-nn\[tensorboard\]"):
        SummaryWriter(tmp_path)


def test_tensorboard_reads_the_files(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", norch.tensor(0.5), 1)
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(1, 0.5)]


def test_what_runs_were_given_and_reached(tmp_path):
    from norch.utils.tensorboard import summary

    with SummaryWriter(tmp_path) as writer:
        for part in summary.hparams({"lr": norch.tensor(0.5), "kind": "sgd"}, {"loss": 1.0}):
            writer._get_file_writer().add_summary(part, 3)
        writer.file_writer.add_summary(summary.scalar("loss", norch.tensor([0.25], requires_grad=True)), 4)
    found = values(tmp_path)
    tags = ["experiment", "session_start_info", "session_end_info"]
    assert {("_hparams_/" + tag, 3) for tag in tags} | {("loss", 4)} == set(found)
    assert b"lr" in found["_hparams_/session_start_info", 3].metadata.plugin_data.content
    assert found["loss", 4].simple_value == 0.25
    with pytest.raises(AttributeError):
        _ = summary._nothing
