"""A process that was forked from one that uses the GPU."""

from __future__ import annotations

import os

import norch


def test_it_is_told_to_be_spawned(cuda: str) -> None:
    norch.ones(1, device=cuda)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = "nothing"
        try:
            norch.ones(1 << 20, device=cuda)
        except Exception as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert "forked from one that uses CUDA" in said
    assert "spawn" in said
