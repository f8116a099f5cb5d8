"""File formats of an exported model. Each format is one file with a function to write it and a function to load it.

``torchscript`` scripts the model including its Python branches, so it runs the same kernels as eager mode. ``onnx`` and
``aot`` (machine code for this type of processor) are both derived from a single ``torch.export`` program, and therefore
also support models that cannot be scripted.

``torchscript`` and ``aot`` files contain executable code and are loaded only from a folder that the operator trusts.
The file of ``torch.export`` itself is not offered as a format, because its loader unpickles objects, imports modules by
name and evaluates expressions. No file contains a path of the exporting machine.
"""

import copy
import json
import logging
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.fx.experimental._config as symbolic_config
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.installation.extras import missing_modules
from graphrerank.models.manifest import Manifest, RerankerManifest
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import temporary_folder

# metadata with file and class names of the exporting machine
MACHINE_METADATA_KEYS = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")
CALIBRATION_MODULE = "calibration"  # name of the submodule that maps scores to probabilities
ONE_THREAD = {"cpp.threads": 1}  # otherwise `aot` keeps the number of threads of the export and ignores the service's
COMPILERS = ("g++", "clang++", "cl")
INTEGERS = ("edge_index", "edge_type", "ptr", "degree")


@dataclass(frozen=True)
class Exportable:
    """Model to export, together with its manifest and an example input.

    Attributes:
        model: Model in evaluation mode on the CPU.
        calibration: Module that maps scores to probabilities, or None for a model without calibration.
        manifest: Manifest of the checkpoint.
        example: Input for tracing. No dynamic size in it is 0 or 1.
    """

    model: nn.Module
    calibration: nn.Module | None
    manifest: Manifest
    example: tuple[Tensor, ...]

    @property
    def inputs(self) -> list[dict[str, str]]:
        """Inputs of the model, in order, each with ``name``, ``dtype`` and ``shape``.

        The shape of vectors that the model does not use is ``[0, 0]``.
        """
        read = self.manifest.inputs
        shapes = {**self.manifest.input_shapes, **dict.fromkeys(read.unread, "[0, 0]")}
        dtypes = {name: "int64" if name in INTEGERS else "float32" for name in read.names}
        return [{"name": name, "dtype": dtypes[name], "shape": shapes[name]} for name in read.names]

    @property
    def outputs(self) -> list[dict[str, str]]:
        """Outputs of the model, in order, each with ``name``, ``dtype`` and ``shape``."""
        shapes = self.manifest.output_shapes
        return [{"name": name, "dtype": "float32", "shape": shape} for name, shape in shapes.items()]

    @cached_property
    def program(self) -> ExportedProgram:
        """Traced model, with the dynamic sizes of the input schema."""
        named = [[axis for axis, size in enumerate(sizes(entry)) if isinstance(size, str)] for entry in self.inputs]
        dynamic: tuple[Any, ...] = tuple(dict.fromkeys(axes, Dim.DYNAMIC) for axes in named)
        model, calibration = self.model, self.calibration
        traced: nn.Module = model
        if "ptr" in self.manifest.inputs.names:
            traced = NeverEmpty(model, [str(sizes(entry)[0]) for entry in self.inputs])
            dynamic = (dynamic,)  # one argument, because `forward` has `*inputs`
        hook = calibration and model.register_forward_hook(lambda module, inputs, scores: (scores, calibration(scores)))
        try:
            with torch.no_grad(), all_sizes_alike():
                program = torch.export.export(traced, self.example, dynamic_shapes=dynamic, strict=False)
        finally:
            if hook:
                hook.remove()
        for node in program.graph.nodes:
            for key in MACHINE_METADATA_KEYS:
                node.meta.pop(key, None)
        return program


class NeverEmpty(nn.Module):
    """Model that adds a query with one candidate to each batch, and removes its score.

    Runtimes fail at empty tensors: ONNX Runtime does not reduce them, so that a batch without candidates would be an
    error. The added candidate has no edges, so it does not change the other scores.

    Args:
        model: Reranker.
        axes: Size of the first axis of each input: ``N`` (candidates), ``B`` (queries), ``B + 1`` (starts of the
            candidates of each query), or another one.
    """

    def __init__(self, model: nn.Module, axes: Sequence[str]) -> None:
        super().__init__()
        self.model, self.axes = model, tuple(axes)

    def forward(self, *inputs: Tensor) -> Any:
        """Score a batch.

        Args:
            inputs: Inputs of the model.

        Returns:
            Outputs of the model.
        """
        extended = []
        for tensor, axis in zip(inputs, self.axes, strict=True):
            if axis == "B + 1":
                tensor = torch.cat([tensor, tensor[-1:] + 1])
            elif axis in ("N", "B"):
                tensor = torch.cat([tensor, tensor.new_zeros(1, *tensor.shape[1:])])
            extended.append(tensor)
        outputs = self.model(*extended)
        return outputs[:-1] if isinstance(outputs, Tensor) else tuple(output[:-1] for output in outputs)


def sizes(entry: Mapping[str, str]) -> list[str | int]:
    """Return the sizes of the axes of an input or output.

    Args:
        entry: Entry of the schema, with the key ``shape``.

    Returns:
        An integer for each fixed size, and an expression (a string) for each dynamic size.

    Example:
        >>> sizes({"name": "x", "dtype": "float32", "shape": "[B + 1, 3]"})
        ['B + 1', 3]
    """
    parts = entry["shape"].strip("[]").split(", ")
    return [int(part) if part.isdigit() else part for part in parts]


def input_names(manifest: Manifest) -> dict[str, Sequence[str]]:
    """Return the names of the columns of ``base_features`` and of the values of ``edge_type``, if the model uses them.

    Args:
        manifest: Manifest of the model.
    """
    names: dict[str, Sequence[str]] = {"edge_type": EDGE_TYPES} if manifest.inputs.reads_edge_types else {}
    if isinstance(manifest, RerankerManifest) and manifest.inputs.reads("base_features"):
        names["base_features"] = manifest.retriever.feature_names
    return names


def all_sizes_alike() -> AbstractContextManager[None]:
    """Return a context in which the tracer and the compiler do not specialise on sizes 0 and 1 (no edge, one node)."""
    return symbolic_config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]


class Runner(nn.Module):
    """Loaded model that runs on the CPU only and is called like the eager model.

    Args:
        run: Function that maps the tensors of the input schema to all outputs, with the scores first.
        name: Name of the format, for error messages.
    """

    def __init__(self, run: Callable[..., Any], name: str) -> None:
        super().__init__()
        self._run = run
        self._name = name
        self.eval()

    def check_device(self, device: torch.device) -> None:
        """Check that the model can run on a device.

        Args:
            device: Device to check.

        Raises:
            ValueError: If ``device`` is not the CPU.
        """
        if device.type != "cpu":
            raise UserError(f"`device` must be cpu for the format {self._name}, got {device}")

    def outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return all outputs, with the scores first.

        Args:
            inputs: Tensors in the order of the input schema.

        Raises:
            ValueError: If a tensor is not on the CPU.
        """
        for tensor in inputs:
            self.check_device(tensor.device)
        outputs = self._run(*(tensor.contiguous() for tensor in inputs))  # compiled code assumes the traced layout
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the scores.

        Args:
            inputs: Tensors in the order of the input schema.
        """
        return self.outputs(*inputs)[0]


def write_torchscript(exportable: Exportable, path: Path) -> None:
    """Script a model and save it. A calibration becomes the submodule ``calibration``.

    Args:
        exportable: Model to write.
        path: File to write.
    """
    model = copy.deepcopy(exportable.model)
    if exportable.calibration is not None:
        model.add_module(CALIBRATION_MODULE, exportable.calibration)
    with temporary_folder() as work:
        script = work / path.name
        torch.jit.save(torch.jit.script(model), str(script))
        with zipfile.ZipFile(script) as old, zipfile.ZipFile(path, "w") as new:  # uncompressed, as torch requires
            for record in old.infolist():
                if not record.filename.endswith(".debug_pkl"):  # debug records contain paths of source files
                    new.writestr(zipfile.ZipInfo(record.filename), old.read(record))


def load_torchscript(path: Path) -> nn.Module:
    """Load a scripted model on the CPU.

    Args:
        path: File to load.

    Returns:
        The scripted module.
    """
    module: nn.Module = torch.jit.load(str(path), "cpu")  # type: ignore[no-untyped-call]
    return module


def write_aot(exportable: Exportable, path: Path) -> None:
    """Compile the exported program with a C++ compiler.

    Args:
        exportable: Model to write.
        path: File to write.

    Raises:
        UserError: If this machine has no C++ compiler.
    """
    if (missing := missing_compiler()) is not None:
        raise UserError(missing)
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # slow import that loading does not need

    program = exportable.program
    program.example_inputs = exportable.example, {}
    with torch.no_grad(), all_sizes_alike():
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=ONE_THREAD)
    with zipfile.ZipFile(path) as package:
        entries = [(entry, package.read(entry)) for entry in package.infolist()]
    with zipfile.ZipFile(path, "w") as package:
        for entry, content in entries:
            if entry.filename.endswith(".cpp"):  # contains the compiler's command
                content = b""
            # Paths in assertions and debug records are overwritten by dots of the same length, which keeps all offsets.
            for folder in map(os.fsencode, (cache_dir(), str(Path(torch.__file__).parents[1]))):
                content = content.replace(folder, b"/" + b"." * (len(folder) - 1))
            package.writestr(entry, content)


def missing_compiler() -> str | None:
    """Return the reason why ``aot`` cannot be written on this machine, or None if it can."""
    if any(map(shutil.which, COMPILERS)):
        return None
    return f"needs a C++ compiler, one of {list(COMPILERS)}, but none is installed"


def load_aot(path: Path) -> nn.Module:
    """Load machine code that was compiled for this type of processor.

    Args:
        path: File to load.

    Returns:
        A module that runs the compiled code.
    """
    return Runner(torch._inductor.aoti_load_package(str(path), run_single_threaded=False), "aot")


def write_onnx(exportable: Exportable, path: Path) -> None:
    """Convert the exported program to ONNX. Requires the extra ``onnx``.

    Args:
        exportable: Model to write.
        path: File to write.
    """
    for name in ("torch.onnx", "onnx_ir", "onnxscript"):
        logging.getLogger(name).setLevel(logging.ERROR)
    inputs, outputs = exportable.inputs, exportable.outputs
    exported = torch.onnx.export(
        exportable.program,
        (),
        input_names=[entry["name"] for entry in inputs],
        output_names=[entry["name"] for entry in outputs],
        custom_translation_table=_onnx_translations(),
        dynamo=True,
        verbose=False,
    )
    assert exported is not None
    proto: Any = exported.model_proto
    graph, entries = proto.graph, [*inputs, *outputs]
    for entry, tensor in zip(entries, [*graph.input, *graph.output], strict=True):
        for size, dim in zip(sizes(entry), tensor.type.tensor_type.shape.dim, strict=True):
            if isinstance(size, str):
                dim.dim_param = size  # replaces the symbol chosen by the exporter
    del graph.value_info[:]
    del proto.metadata_props[:]
    for node in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):  # contain paths of source files
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    for name, meanings in sorted(input_names(exportable.manifest).items()):
        proto.metadata_props.add(key=name, value=json.dumps(list(meanings)))
    path.write_bytes(proto.SerializeToString(deterministic=True))


def missing_onnx() -> str | None:
    """Return the reason why ``onnx`` cannot be written in this environment, or None if it can."""
    missing = missing_modules("onnx")
    return f"needs {', '.join(missing)}: pip install 'graphrerank[onnx]'" if missing else None


def _onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return ONNX translations of two operators.

    - ``index_add`` becomes ``ScatterElements``, because ``ScatterND`` adds duplicate indices in parallel without a
      lock.
    - A stable sort becomes ``TopK`` over all entries, which orders equal entries by index.
    """
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


def load_onnx(path: Path) -> nn.Module:
    """Open an ONNX Runtime session on the CPU, with the same number of threads as torch.

    Args:
        path: File to load.

    Returns:
        A module that runs the session.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Loading from bytes rejects a model that refers to external files.
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        feed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, feed)]

    return Runner(run, "onnx")


@dataclass(frozen=True)
class Format:
    """Export format: its file, and the functions that write and load it.

    An error of any class in these functions becomes a ``UserError`` that names the format.

    Attributes:
        name: Name of the format.
        file: Name of its file in an artifact.
        writer: Function that writes the file.
        loader: Function that returns a module in evaluation mode on the CPU, which maps inputs to scores.
        capture: First step of the writer. Fails for a model that the format cannot express.
        missing: Function that returns the reason why the format cannot be written on this machine, or None if it can.
    """

    name: str
    file: str
    writer: Callable[[Exportable, Path], None]
    loader: Callable[[Path], nn.Module]
    capture: Callable[[Exportable], object]
    missing: Callable[[], str | None] = lambda: None

    def write(self, exportable: Exportable, path: Path) -> None:
        """Write the file of a model.

        Args:
            exportable: Model with its inputs and outputs.
            path: File to write.

        Raises:
            UserError: If the model cannot be written in this format. The message names the formats that can express it.
        """
        try:
            self._quietly(f"format {self.name} cannot be written", self.writer, exportable, path)
        except UserError as error:
            if isinstance(error.__cause__, ImportError | UserError):  # an extra or a compiler is missing
                raise
            raise UserError(f"{error}; {self._alternatives(exportable)}") from error.__cause__

    def load(self, path: Path) -> nn.Module:
        """Load the model of a file.

        Args:
            path: File to load.

        Returns:
            A module in evaluation mode on the CPU, which maps inputs to scores.

        Raises:
            UserError: If the file cannot be loaded.
        """
        return self._quietly(f"{path}: cannot be loaded as format {self.name}", self.loader, path)

    def can_express(self, exportable: Exportable) -> bool:
        """Return whether the model can be scripted or traced, whichever the format requires.

        Args:
            exportable: Model to test.
        """
        try:
            self._quietly("", self.capture, exportable)
        except UserError:
            return False
        return True

    def _alternatives(self, exportable: Exportable) -> str:
        names = [name for name, form in FORMATS.items() if name != self.name and form.can_express(exportable)]
        model = exportable.manifest.model
        described = f"{model.name} conv={model.arguments['conv']}" if "conv" in model.arguments else model.name
        if names:
            return f"{described} can be exported with formats={names}".replace("'", "")
        return f"{described} cannot be exported in any format and can only be used as a checkpoint"

    def _quietly(self, failure: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with warnings.catch_warnings():  # torch deprecates features that it uses itself
                warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
                warnings.simplefilter("ignore", FutureWarning)
                return function(*arguments)
        except Exception as error:  # exporters, compilers and runtimes have no common base class
            extra = "; pip install graphrerank[onnx]" if isinstance(error, ImportError) else ""
            raise UserError(f"{failure}: {_reason(error)}{extra}") from error


def _reason(error: Exception) -> str:
    """Return the first line of an error message and of each of its causes, without the program listings that follow."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    lines = [next((line.strip() for line in str(each).splitlines() if line.strip()), "") for each in causes]
    return ": ".join(dict.fromkeys(line.removesuffix(":") for line in lines if line)) or type(error).__name__


def _script(exportable: Exportable) -> object:
    return torch.jit.script(copy.deepcopy(exportable.model))


def _program(exportable: Exportable) -> object:
    return exportable.program


FORMATS = {
    form.name: form
    for form in (
        Format("torchscript", "model.pt", write_torchscript, load_torchscript, _script),
        Format("onnx", "model.onnx", write_onnx, load_onnx, _program, missing_onnx),
        Format("aot", "model.aot.pt2", write_aot, load_aot, _program, missing_compiler),
    )
}
