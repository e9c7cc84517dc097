"""SummaryWriter: tensorboardX's, which is given NumPy arrays in place of tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Self

import norch


def _taking_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return method(*plain(args), **plain(kwargs))

    return call


def _method(name: str) -> Callable[..., Any]:
    def method(self: SummaryWriter, *args: Any, **kwargs: Any) -> Any:
        return _taking_tensors(getattr(self._writer, name))(*args, **kwargs)

    method.__name__, method.__qualname__ = name, f"SummaryWriter.{name}"
    method.__doc__ = f"`{name}` of tensorboardX's SummaryWriter, with tensors or arrays."
    return method


class SummaryWriter:
    """Writes files of events into `log_dir` (by default runs/TIME_HOST and `comment`) for TensorBoard.

        with SummaryWriter() as writer:
            writer.add_scalar("loss", loss, step)

    Besides the methods written out below it has those of tensorboardX's, in which tensors may stand for arrays.
    purge_step: what a crashed run wrote from that step on is hidden. max_queue, flush_secs: when events are written.
    Raises ImportError without tensorboardX. filename_suffix: what the file's name ends in.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        try:
            import tensorboardX
        except ImportError:
            raise ImportError("SummaryWriter needs tensorboardX: pip install norch-nn[tensorboard]") from None
        folder = None if log_dir is None else os.fspath(log_dir)
        self._writer = tensorboardX.SummaryWriter(
            folder, comment, purge_step, max_queue, flush_secs, filename_suffix=filename_suffix
        )
        self.log_dir: str = str(self._writer.logdir)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """A number, a tensor of one too, `scalar_value`, at the step `global_step` of the curve `tag`, written at
        `walltime`, by default now.

        new_style, double_precision: taken for PyTorch's sake; the value is written as float32, which is all that
        TensorBoard shows of it.
        """
        self._writer.add_scalar(tag, plain(scalar_value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """The values of a tensor, as a histogram: TensorBoard shows no tensors.

        tag, global_step, walltime: as of `add_scalar`.
        """
        self._writer.add_histogram(tag, plain(tensor), global_step, walltime=walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Any] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """The options of a run, `hparam_dict`, and what it reached, `metric_dict`, in a run of its own below log_dir,
        `run_name` or the time.

        hparam_domain_discrete: taken for PyTorch's sake; TensorBoard finds out itself which values there are.
        global_step: of what it reached.
        """
        self._writer.add_hparams(plain(dict(hparam_dict)), plain(dict(metric_dict)), run_name, global_step)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The graph of a model: it is called with `input_to_model`, a tensor or a tuple of arguments, in this process.

        Shown are the ops that autograd records, each in the module that called it, with parameters, inputs and outputs.
        verbose: prints it too. use_strict_trace: ignored. Raises ValueError without input, and where nothing was
        recorded.
        """
        from .graph import graph_event, model_graph

        graph = model_graph(model, input_to_model)
        if verbose:
            print(graph)
        self._writer._get_file_writer().add_event(graph_event(graph))

    add_audio = _method("add_audio")
    add_custom_scalars = _method("add_custom_scalars")
    add_custom_scalars_marginchart = _method("add_custom_scalars_marginchart")
    add_custom_scalars_multilinechart = _method("add_custom_scalars_multilinechart")
    add_embedding = _method("add_embedding")
    add_figure = _method("add_figure")
    add_histogram = _method("add_histogram")
    add_histogram_raw = _method("add_histogram_raw")
    add_image = _method("add_image")
    add_image_with_boxes = _method("add_image_with_boxes")
    add_images = _method("add_images")
    add_mesh = _method("add_mesh")
    add_onnx_graph = _method("add_onnx_graph")
    add_pr_curve = _method("add_pr_curve")
    add_pr_curve_raw = _method("add_pr_curve_raw")
    add_scalars = _method("add_scalars")
    add_text = _method("add_text")
    add_video = _method("add_video")
    close = _method("close")
    flush = _method("flush")

    def get_logdir(self) -> str:
        """Where the events are written."""
        return self.log_dir

    def _get_file_writer(self) -> Any:
        return self._writer._get_file_writer()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._writer, name)
        return _taking_tensors(found) if callable(found) else found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()


def plain(value: Any) -> Any:
    """`value` with NumPy arrays for tensors, and numbers for those without dims; within lists, tuples and dicts too."""
    if isinstance(value, norch.Tensor):
        if value.dtype in (norch.bfloat16, norch.float16):
            value = value.float()
        value = value.detach().cpu()
        return value.numpy() if value.ndim else value.item()
    if type(value) in (list, tuple):
        return type(value)(plain(part) for part in value)
    if type(value) is dict:
        return {key: plain(part) for key, part in value.items()}
    return value
