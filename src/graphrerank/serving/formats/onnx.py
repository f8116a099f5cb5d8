"""ONNX, for ONNX Runtime and other readers, with our own translation of two operators.

- ``index_add`` becomes ``ScatterElements``, as ``ScatterND`` adds duplicate indices in parallel without a lock.
- A stable sort becomes ``TopK`` of all entries, which orders equal ones by index.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphrerank.serving.formats.exportable import Exportable, Runner, symbols

NOISY = ("torch.onnx", "onnx_ir", "onnxscript")


def write(exportable: Exportable, path: Path) -> None:
    """Convert the exported program; a ValueError without the extra ``onnx``, or for an operator that ONNX lacks."""
    try:
        translations = _translations()
    except ImportError as error:
        raise ValueError(f"formats=[onnx] needs `pip install graphrerank[onnx]`: {error}") from error
    program = exportable.program
    try:
        with _quiet():
            exported = torch.onnx.export(
                program,
                (),
                input_names=[entry["name"] for entry in exportable.inputs],
                output_names=[entry["name"] for entry in exportable.outputs],
                custom_translation_table=translations,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise ValueError(f"onnx cannot express this model: {error}") from error
    assert exported is not None
    proto = exported.model_proto
    _name_sizes(proto.graph, exportable)
    _strip(proto)
    for name, meanings in sorted(exportable.names.items()):
        proto.metadata_props.add(key=name, value=json.dumps(list(meanings)))
    path.write_bytes(proto.SerializeToString(deterministic=True))


def load(path: Path) -> nn.Module:
    """Open a session of ONNX Runtime on the CPU, with as many threads as torch; a ValueError if it cannot be read."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ValueError(f"the format onnx needs `pip install graphrerank[onnx]`: {error}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:  # from bytes: a file that refers to other files is refused
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors share no class
        raise ValueError(f"{path}: not a model that ONNX Runtime can load: {error}") from error
    names = [entry.name for entry in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        feed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, feed)]

    return Runner(run, "onnx").eval()


def _translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    from onnxscript import opset20 as op

    def sort(self: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
        size = op.Gather(op.Shape(self), op.Constant(value_ints=[dim]))
        return op.TopK(self, size, axis=dim, largest=int(descending), sorted=1)

    def index_add(self: Any, dim: int, index: Any, source: Any, alpha: float = 1.0) -> Any:
        assert dim == 0
        assert alpha == 1
        for axis in range(1, len(source.shape)):
            index = op.Unsqueeze(index, op.Constant(value_ints=[axis]))
        index = op.Expand(index, op.Shape(source))
        return op.ScatterElements(self, index, source, axis=0, reduction="add")

    return {torch.ops.aten.sort.stable: sort, torch.ops.aten.index_add.default: index_add}


def _name_sizes(graph: Any, exportable: Exportable) -> None:
    """Replace the exporter's symbols by the schema's."""
    for entries, tensors in ((exportable.inputs, graph.input), (exportable.outputs, graph.output)):
        for entry, tensor in zip(entries, tensors, strict=True):
            for size, dim in zip(symbols(entry), tensor.type.tensor_type.shape.dim, strict=True):
                if isinstance(size, str):
                    dim.dim_param = size


def _strip(proto: Any) -> None:
    """Remove what no runtime reads and what names files of this machine."""
    del proto.graph.value_info[:]
    del proto.metadata_props[:]
    for node in (proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        node.ClearField("doc_string")
        node.ClearField("metadata_props")


@contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # raised by torch about itself
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
