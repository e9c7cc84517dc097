"""Sparse tensors: what they cannot do says so, and what does instead."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sparse_makers import coo, csr, draw

import norch


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: norch.sparse_coo_tensor([[0, 5], [1, 1]], [1.0, 2.0], (2, 3)), norch.IndexError, "hold 5 for dim 0"),
        (lambda: norch.sparse_coo_tensor([[0, -1], [1, 1]], [1.0, 2.0]), norch.IndexError, "hold -1"),
        (lambda: norch.sparse_coo_tensor([[0, 1], [1, 1]], [1.0], (2, 3)), norch.ShapeError, r"2 indices for values"),
        (lambda: norch.sparse_coo_tensor([0, 1], [1.0, 2.0], (2,)), norch.ShapeError, r"indices must have 2 dims"),
        (lambda: norch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 3)), norch.ShapeError, r"size \(2, 3\) for 1"),
        (lambda: norch.sparse_coo_tensor([[0.5]], [1.0]), norch.DTypeError, r"indices must be integers"),
        (lambda: norch.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0]), norch.ShapeError, r"crow_indices must begin"),
        (
            lambda: norch.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], check_invariants=True),
            norch.ShapeError,
            r"col_indices must rise",
        ),
        (lambda: norch.sparse_csr_tensor([0, 2], [1, 3], [1.0, 2.0], (1, 3)), norch.IndexError, r"hold 3 for 3"),
        (lambda: norch.sparse_csr_tensor([[0, 1]], [[0]], [[1.0]]), norch.ShapeError, r"without batches"),
        (lambda: norch.ones(2, 2, 2).to_sparse_csr(), norch.ShapeError, r"without batches"),
        (lambda: norch.tensor(1.0).to_sparse(), norch.ShapeError, r"to_sparse\(\)"),
        (lambda: coo().indices(), norch.ShapeError, r"indices\(\): the tensor is not coalesced"),
        (lambda: csr().indices(), norch.DTypeError, r"norch.sparse_csr; use to_sparse\(\)"),
        (lambda: coo().crow_indices(), norch.DTypeError, r"use to_sparse_csr\(\)"),
        (lambda: coo() @ draw(3, 2), norch.ShapeError, r"matmul\(\): shapes \(3, 4\) and \(3, 2\)"),
        (lambda: coo() @ draw(4, 2).float(), norch.DTypeError, r"float64 and norch.float32"),
        (lambda: norch.sparse.mm(coo(), draw(4, 2), "prod"), ValueError, r"mm\(\): reduce must be sum"),
        (lambda: norch.sparse.mm(coo(), draw(4)), norch.ShapeError, r"mm\(\): expected tensors of 2 and 2 dims"),
        (lambda: coo() @ draw(3, 4, 2), norch.ShapeError, r"a sparse matrix and a dense vector or matrix"),
        (lambda: coo() + 1, norch.DTypeError, r"add\(\): a sparse tensor and a number"),
        (lambda: coo() + coo().t(), norch.ShapeError, r"add\(\): sparse tensors of shapes"),
        (lambda: coo() / draw(3, 4), norch.DTypeError, r"div\(\)"),
        (lambda: coo() * draw(2, 3, 4), norch.ShapeError, r"mul\(\): a sparse tensor of shape \(3, 4\) does not"),
        (lambda: coo().view(12), norch.DTypeError, r"view\(\): takes no sparse tensors; use to_dense\(\) first"),
        (lambda: coo().exp(), norch.DTypeError, r"exp\(\): takes no sparse tensors; use to_dense\(\) first"),
        (lambda: norch.exp(coo()), norch.DTypeError, r"exp\(\): takes no sparse tensors; use to_dense\(\) first"),
        (lambda: coo().numpy(), norch.DTypeError, r"numpy\(\): takes no sparse tensors"),
        (lambda: coo().tolist(), norch.DTypeError, r"tolist\(\): takes no sparse tensors"),
        (lambda: coo().data_ptr(), norch.DTypeError, r"data_ptr\(\): takes no sparse tensors"),
        (lambda: np.asarray(coo()), norch.DTypeError, r"takes no sparse tensors"),
        (lambda: norch.ones_like(coo()), norch.DTypeError, r"takes no sparse tensors"),
        (lambda: coo() > 0, norch.DTypeError, r"gt\(\): takes no sparse tensors"),
        (lambda: coo()[:1], norch.DTypeError, r"sparse tensors take ints only"),
        (lambda: coo()[5], norch.IndexError, r"index 5 is out of range"),
        (lambda: norch.cat([coo(), draw(3, 4)]), norch.DTypeError, r"cat\(\): takes sparse tensors or dense ones"),
        (lambda: norch.sparse.softmax(draw(3, 4), 1), norch.DTypeError, r"softmax\(\): expected a sparse tensor"),
        (lambda: norch.sparse.softmax(coo().long(), 1), norch.DTypeError, r"needs a floating dtype"),
        (lambda: norch.sparse.sum(coo(), 2), norch.IndexError, r"dim 2 is out of range"),
        (lambda: coo(requires_grad=True).mul_(2), norch.AutogradError, r"a leaf that requires grad"),
        (lambda: norch.sparse_coo_tensor([[0]], [1], (1,), requires_grad=True), norch.DTypeError, r"floating tensors"),
        (lambda: norch.sparse.SparseTensor(2), norch.DTypeError, "made by norch.sparse_coo_tensor"),
    ],
)  # fmt: skip
def test_errors_name_the_op_and_a_way_around(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_every_method_of_tensors_works_or_says_what_to_do():
    """Never an internal AttributeError, nor a result read from memory that holds the stored elements alone."""
    works, unclear = [], []
    for name in sorted(n for n in dir(norch.Tensor) if not n.startswith("_")):
        method = getattr(coo(), name)
        if not callable(method) or isinstance(method, norch.Tensor):
            continue
        try:
            found = method()
        except norch.DeviceError:
            continue
        except (norch.NorchError, TypeError) as error:
            unclear += [name] * (not any(part in str(error) for part in ("to_dense()", f"{name}()", "argument")))
            continue
        if isinstance(found, norch.Tensor) and found.is_contiguous() and found.dim():
            works.append(name)
    assert (works, unclear) == (["to_dense"], [])


def test_a_file_of_tensors_alone_has_no_sparse_one(tmp_path):
    with pytest.raises(norch.DTypeError, match="x is a sparse tensor"):
        norch.save_safetensors({"x": coo()}, tmp_path / "x.safetensors")


def test_import_norch_does_not_load_it():
    code = "import norch, sys; norch.ones(2).is_sparse; assert 'norch.sparse' not in sys.modules; norch.sparse.mm"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_layouts_of_blocks_can_be_asked_for_and_none_has_them():
    x = norch.eye(2)
    for layout in (norch.sparse_bsr, norch.sparse_bsc):
        assert layout not in (x.layout, x.to_sparse().layout)
        with pytest.raises(TypeError, match="COO, CSR or CSC"):
            x.to_sparse(layout=layout)
        with pytest.raises(TypeError, match="no layout"):
            norch.zeros(2, 2, layout=layout)
    assert norch.sparse.Tensor is norch.Tensor
