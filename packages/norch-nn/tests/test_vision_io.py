"""Files of images as tensors: norch.vision.io, beside files written here byte by byte."""

from __future__ import annotations

import io as files
import struct
import sys
import zlib

import numpy as np
import pytest

import norch
from norch.vision import io
from norch.vision.io import ImageReadMode

pytestmark = pytest.mark.usefixtures("on_host")


def png(rows, width: int, depth: int, kind: int, *chunks: tuple[bytes, bytes]) -> norch.Tensor:
    """A PNG file of rows of bytes. kind: 0 grey, 2 colours, 3 of a palette, 4 grey with alpha, 6 colours with alpha."""
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    header = struct.pack(">IIBBBBB", width, len(rows), depth, kind, 0, 0, 0)
    made = b"\x89PNG\r\n\x1a\n"
    for name, content in ((b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b"")):
        made += struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return norch.tensor(list(made), dtype=norch.uint8)


def image(channels: int = 3) -> norch.Tensor:
    return norch.tensor(np.random.default_rng(0).integers(0, 256, (channels, 5, 7)).astype(np.uint8))


GREY = png([[0, 100], [200, 255]], 2, 8, 0)
COLOURS = png([[10, 20, 30, 255, 0, 0]], 2, 8, 2)
PALETTE = png([[1, 0]], 2, 8, 3, (b"PLTE", bytes([1, 2, 3, 4, 5, 6])))
GREY_ALPHA = png([[10, 128, 20, 255]], 2, 8, 4)
COLOURS_ALPHA = png([[10, 20, 30, 40, 50, 60, 70, 80]], 2, 8, 6)
BITS = png([[0b10100000]], 3, 1, 0)
SIXTEEN = png([[1, 0, 255, 255]], 2, 16, 0)


@pytest.mark.parametrize(
    ("file", "mode", "expected"),
    [
        (GREY, "UNCHANGED", [[[0, 100], [200, 255]]]),
        (GREY, "RGB", [[[0, 100], [200, 255]]] * 3),
        (GREY, "GRAY_ALPHA", [[[0, 100], [200, 255]], [[255, 255], [255, 255]]]),
        (COLOURS, "UNCHANGED", [[[10, 255]], [[20, 0]], [[30, 0]]]),
        (COLOURS, "RGBA", [[[10, 255]], [[20, 0]], [[30, 0]], [[255, 255]]]),
        (COLOURS, "GRAY", [[[18, 76]]]),
        (PALETTE, "UNCHANGED", [[[1, 0]]]),
        (PALETTE, "RGB", [[[4, 1]], [[5, 2]], [[6, 3]]]),
        (GREY_ALPHA, "UNCHANGED", [[[10, 20]], [[128, 255]]]),
        (GREY_ALPHA, "GRAY", [[[10, 20]]]),
        (COLOURS_ALPHA, "UNCHANGED", [[[10, 50]], [[20, 60]], [[30, 70]], [[40, 80]]]),
        (COLOURS_ALPHA, "rgb", [[[10, 50]], [[20, 60]], [[30, 70]]]),
        (BITS, "UNCHANGED", [[[255, 0, 255]]]),
        (SIXTEEN, "UNCHANGED", [[[256, 65535]]]),
        (SIXTEEN, "RGB_ALPHA", [[[256, 65535]]] * 3 + [[[65535, 65535]]]),
    ],
)
def test_channels_are_what_the_mode_says(file, mode, expected):
    pytest.importorskip("PIL")
    for found in (io.decode_png(file, mode), io.decode_image(file, ImageReadMode[mode.upper()])):
        assert found.tolist() == expected
        assert found.dtype is (norch.uint16 if file is SIXTEEN else norch.uint8)


def test_files_are_written_and_read(tmp_path):
    pytest.importorskip("PIL")
    for x in (image(), image(1)):
        io.write_png(x, tmp_path / "x.png", compression_level=0)
        assert norch.equal(io.read_image(str(tmp_path / "x.png")), x)
        assert norch.equal(io.decode_image(tmp_path / "x.png"), x)
        assert norch.equal(io.decode_png(io.encode_png(x, 9)), x)
    assert (tmp_path / "x.png").read_bytes() == bytes(io.read_file(tmp_path / "x.png").tolist())
    assert len(io.encode_png(image(), 0)) > len(io.encode_png(image() * 0, 9))
    smooth = norch.arange(256, dtype=norch.uint8).view(1, 16, 16).expand(3, 16, 16)
    io.write_jpeg(smooth, tmp_path / "x.jpg", quality=95)
    found = io.read_image(tmp_path / "x.jpg")
    assert found.shape == (3, 16, 16)
    assert (found.int() - smooth.int()).abs().max() < 8
    assert len(io.encode_jpeg(smooth, 10)) < len(io.encode_jpeg(smooth, 100))


def test_jpeg_files_are_what_pillow_reads():
    Image = pytest.importorskip("PIL.Image")
    data = io.encode_jpeg(image(), 90)
    pixels = np.asarray(Image.open(files.BytesIO(bytes(data.tolist()))))
    assert (io.decode_jpeg(data).permute(1, 2, 0).numpy() == pixels).all()
    both = io.decode_jpeg([data, data], device="cpu")
    assert [x.shape for x in both] == [(3, 5, 7)] * 2
    brightness = Image.open(files.BytesIO(bytes(data.tolist())))
    brightness.draft("YCbCr", None)
    assert (io.decode_jpeg(data, ImageReadMode.GRAY)[0].numpy() == np.asarray(brightness)[..., 0]).all()
    assert [len(x) for x in io.encode_jpeg([image(), image()])] == [len(io.encode_jpeg(image()))] * 2
    grey = io.encode_jpeg(image(1))
    assert (io.decode_jpeg(grey).shape, io.decode_jpeg(grey, "RGB").shape) == ((1, 5, 7), (3, 5, 7))


def test_orientation_is_applied_where_it_is_asked_for():
    Image = pytest.importorskip("PIL.Image")
    made, exif = files.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(image(1)[0].numpy()).save(made, "PNG", exif=exif)
    data = norch.tensor(list(made.getvalue()), dtype=norch.uint8)
    assert norch.equal(io.decode_png(data), image(1))
    assert norch.equal(io.decode_image(data, apply_exif_orientation=True), image(1).rot90(-1, (1, 2)))


def test_gif_and_webp():
    Image = pytest.importorskip("PIL.Image")
    frames = [Image.new("RGB", (3, 2), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    for saved, shape in (({}, (3, 2, 3)), ({"save_all": True, "append_images": frames[1:]}, (2, 3, 2, 3))):
        made = files.BytesIO()
        frames[0].save(made, "GIF", **saved)
        data = norch.tensor(list(made.getvalue()), dtype=norch.uint8)
        for found in (io.decode_gif(data), io.decode_image(data, "GRAY")):
            assert found.shape == shape
            assert found.reshape(-1, 3, 2, 3)[:, :, 0, 0].tolist() == [[255, 0, 0], [0, 0, 255]][: len(shape) - 2]
    made = files.BytesIO()
    Image.fromarray(image().permute(1, 2, 0).contiguous().numpy()).save(made, "WEBP", lossless=True)
    data = norch.tensor(list(made.getvalue()), dtype=norch.uint8)
    assert norch.equal(io.decode_webp(data), image())
    assert io.decode_image(data, "RGBA").shape == (4, 5, 7)


def test_what_is_no_image():
    pytest.importorskip("PIL")
    for wrong in (norch.ones(3), norch.ones(2, 2, dtype=norch.uint8), [1]):
        with pytest.raises(norch.DTypeError, match="1-D tensor of uint8"):
            io.decode_image(wrong) if isinstance(wrong, norch.Tensor) else io.write_file("x", wrong)
    with pytest.raises(RuntimeError, match="decode_jpeg"):
        io.decode_jpeg(GREY)
    with pytest.raises(RuntimeError, match="decode_png"):
        io.decode_png(GREY[:45])
    with pytest.raises(RuntimeError, match="decode_image"):
        io.decode_image(norch.zeros(10, dtype=norch.uint8))
    with pytest.raises(NotImplementedError, match="16 bits"):
        io.decode_png(png([[0, 1, 0, 2, 0, 3]], 1, 16, 2))
    with pytest.raises(norch.DTypeError, match="image of uint8"):
        io.encode_png(norch.ones(3, 2, 2))
    with pytest.raises(norch.ShapeError, match=r"got \(4, 5, 7\)"):
        io.encode_jpeg(image(4))
    with pytest.raises(ValueError, match="quality"):
        io.encode_jpeg(image(), 0)
    with pytest.raises(ValueError, match="compression_level"):
        io.write_png(image(), "x", 10)
    with pytest.raises(FileNotFoundError):
        io.read_image("/nowhere/x.png")


def test_without_pillow(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    io.write_file(tmp_path / "x", norch.arange(5, dtype=norch.uint8))
    assert io.read_file(tmp_path / "x").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ImportError, match=r"decode_image\(\) needs Pillow.*norch-nn\[vision\]"):
        io.decode_image(GREY)
    with pytest.raises(ImportError, match="encode_png"):
        io.encode_png(image())


def test_videos_can_be_named():
    assert io.read_video is io.read_video
    with pytest.raises(NotImplementedError, match=r"norch has no vision\.io\.read_video; "):
        io.read_video("x.mp4")
    from norch.vision.io.image import decode_image

    assert decode_image is io.decode_image
