"""The formats of an exported model, each a file that one function writes and another reads.

``torchscript`` scripts Python's branches, so it runs the eager kernels; ``onnx``, and ``aot``, machine code for this
kind of processor, are derived from one program of ``torch.export``, so they are the formats of models that do not
script. ``torchscript`` and ``aot`` contain programs: they are loaded only from a folder that the operator named. The
file of ``torch.export`` itself is no format, as its loader unpickles, imports by name and evaluates expressions. No
file names a folder of the exporting machine.
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

# names of files and classes of the exporting machine
MACHINE_METADATA_KEYS = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")
CALIBRATION_MODULE = "calibration"  # name of the submodule that maps scores to probabilities
ONE_THREAD = {"cpp.threads": 1}  # else `aot` uses as many threads as the export had, whatever the service sets
COMPILERS = ("g++", "clang++", "cl")
INTEGERS = ("edge_index", "edge_type", "ptr", "degree")


@dataclass(frozen=True)
class Exportable:
    """A model to be exported, with the inputs and outputs of its manifest."""

    model: nn.Module  # in evaluation mode, on the CPU
    calibration: nn.Module | None  # maps scores to probabilities
    manifest: Manifest
    example: tuple[Tensor, ...]  # inputs without a dynamic size of 0 or 1

    @property
    def inputs(self) -> list[dict[str, str]]:
        """The model's inputs, in order: ``name``, ``dtype`` and ``shape``, ``[0, 0]`` for vectors that are not read."""
        read = self.manifest.inputs
        shapes = {**self.manifest.input_shapes, **dict.fromkeys(read.unread, "[0, 0]")}
        dtypes = {name: "int64" if name in INTEGERS else "float32" for name in read.names}
        return [{"name": name, "dtype": dtypes[name], "shape": shapes[name]} for name in read.names]

    @property
    def outputs(self) -> list[dict[str, str]]:
        """The model's outputs, in order."""
        shapes = self.manifest.output_shapes
        return [{"name": name, "dtype": "float32", "shape": shape} for name, shape in shapes.items()]

    @cached_property
    def program(self) -> ExportedProgram:
        """The traced model, with dynamic sizes as in the schema."""
        named = [[axis for axis, size in enumerate(sizes(entry)) if isinstance(size, str)] for entry in self.inputs]
        dynamic = tuple(dict.fromkeys(axes, Dim.DYNAMIC) for axes in named)
        model, calibration = self.model, self.calibration
        hook = calibration and model.register_forward_hook(lambda module, inputs, scores: (scores, calibration(scores)))
        try:
            with torch.no_grad(), all_sizes_alike():
                program = torch.export.export(model, self.example, dynamic_shapes=dynamic, strict=False)
        finally:
            if hook:
                hook.remove()
        for node in program.graph.nodes:
            for key in MACHINE_METADATA_KEYS:
                node.meta.pop(key, None)
        return program


def sizes(entry: Mapping[str, str]) -> list[str | int]:
    """Return the sizes of an input or output: integers, and strings if they are dynamic.

    Example:
        >>> sizes({"name": "x", "dtype": "float32", "shape": "[B + 1, 3]"})
        ['B + 1', 3]
    """
    parts = entry["shape"].strip("[]").split(", ")
    return [int(part) if part.isdigit() else part for part in parts]


def input_names(manifest: Manifest) -> dict[str, Sequence[str]]:
    """Return the meaning of the columns of ``base_features`` and of the numbers of ``edge_type``, if read."""
    names: dict[str, Sequence[str]] = {"edge_type": EDGE_TYPES} if manifest.inputs.reads_edge_types else {}
    if isinstance(manifest, RerankerManifest) and manifest.inputs.reads("base_features"):
        names["base_features"] = manifest.retriever.feature_names
    return names


def all_sizes_alike() -> AbstractContextManager[None]:
    """Let tracer and compiler treat sizes 0 and 1 (no edge, one node) like any other."""
    return symbolic_config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]


class Runner(nn.Module):
    """A loaded model that runs on the CPU only, called like the eager one.

    ``run`` maps the tensors of the schema to all outputs, the scores first; ``name`` is that of the format.
    """

    def __init__(self, run: Callable[..., Any], name: str) -> None:
        super().__init__()
        self._run = run
        self._name = name
        self.eval()

    def check_device(self, device: torch.device) -> None:
        """Raise a ValueError if the device is not the CPU."""
        if device.type != "cpu":
            raise UserError(f"`device` must be cpu for the format {self._name}, got {device}")

    def outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return all outputs; a ValueError if a tensor is not on the CPU."""
        for tensor in inputs:
            self.check_device(tensor.device)
        outputs = self._run(*(tensor.contiguous() for tensor in inputs))  # compiled code assumes the traced layout
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the scores."""
        return self.outputs(*inputs)[0]


def write_torchscript(exportable: Exportable, path: Path) -> None:
    """Script a model; a calibration becomes its submodule ``calibration``."""
    model = copy.deepcopy(exportable.model)
    if exportable.calibration is not None:
        model.add_module(CALIBRATION_MODULE, exportable.calibration)
    with temporary_folder() as work:
        script = work / path.name
        torch.jit.save(torch.jit.script(model), str(script))
        with zipfile.ZipFile(script) as old, zipfile.ZipFile(path, "w") as new:  # stored, as torch's reader needs
            for record in old.infolist():
                if not record.filename.endswith(".debug_pkl"):  # these name source files
                    new.writestr(zipfile.ZipInfo(record.filename), old.read(record))


def load_torchscript(path: Path) -> nn.Module:
    """Load a scripted model."""
    module: nn.Module = torch.jit.load(str(path), "cpu")  # type: ignore[no-untyped-call]
    return module


def write_aot(exportable: Exportable, path: Path) -> None:
    """Compile the exported program, by a C++ compiler."""
    if (missing := missing_compiler()) is not None:
        raise UserError(missing)
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # heavy: not for loading

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
            # machine code has folders in assertions and debug records; as many dots keep every offset
            for folder in map(os.fsencode, (cache_dir(), str(Path(torch.__file__).parents[1]))):
                content = content.replace(folder, b"/" + b"." * (len(folder) - 1))
            package.writestr(entry, content)


def missing_compiler() -> str | None:
    """Return why ``aot`` cannot be written on this machine; None if it can."""
    if any(map(shutil.which, COMPILERS)):
        return None
    return f"needs a C++ compiler, one of {list(COMPILERS)}, found none"


def load_aot(path: Path) -> nn.Module:
    """Load machine code of this kind of processor."""
    return Runner(torch._inductor.aoti_load_package(str(path), run_single_threaded=False), "aot")


def write_onnx(exportable: Exportable, path: Path) -> None:
    """Convert the exported program, by the extra ``onnx``."""
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
                dim.dim_param = size  # in the place of the exporter's symbol
    del graph.value_info[:]
    del proto.metadata_props[:]
    for node in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):  # these name source files
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
    for name, meanings in sorted(input_names(exportable.manifest).items()):
        proto.metadata_props.add(key=name, value=json.dumps(list(meanings)))
    path.write_bytes(proto.SerializeToString(deterministic=True))


def missing_onnx() -> str | None:
    """Return why ``onnx`` cannot be written in this installation; None if it can."""
    missing = missing_modules("onnx")
    return f"needs {', '.join(missing)}: pip install 'graphrerank[onnx]'" if missing else None


def _onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return translations of two operators.

    - ``index_add`` becomes ``ScatterElements``, as ``ScatterND`` adds duplicate indices in parallel without a lock.
    - A stable sort becomes ``TopK`` of all entries, which orders equal ones by index.
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
    """Open a session of ONNX Runtime on the CPU, with as many threads as torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # from bytes: a file that refers to other files is refused
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        feed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, feed)]

    return Runner(run, "onnx")


@dataclass(frozen=True)
class Format:
    """A format: its file, and functions whose errors, of any class, become a ``UserError`` that names the format."""

    name: str
    file: str  # name of its file in an artifact
    writer: Callable[[Exportable, Path], None]
    loader: Callable[[Path], nn.Module]  # a module that scores, on the CPU, in evaluation mode
    capture: Callable[[Exportable], object]  # the first step of the writer, which fails for a model it cannot express
    missing: Callable[[], str | None] = lambda: None  # why it cannot be written here; None if it can

    def write(self, exportable: Exportable, path: Path) -> None:
        """Write the file of a model.

        Args:
            exportable: The model with its inputs and outputs.
            path: File to write.

        Raises:
            UserError: If the model cannot be written in this format. The message names the formats that can express it.
        """
        try:
            self._quietly(f"the format {self.name} cannot be written", self.writer, exportable, path)
        except UserError as error:
            if isinstance(error.__cause__, ImportError | UserError):  # an extra or a compiler is missing
                raise
            raise UserError(f"{error}; {self._alternatives(exportable)}") from error.__cause__

    def load(self, path: Path) -> nn.Module:
        """Load the model of a file."""
        return self._quietly(f"{path}: cannot be loaded in the format {self.name}", self.loader, path)

    def can_express(self, exportable: Exportable) -> bool:
        """Return whether the model can be scripted or traced, whichever the format needs."""
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
        return f"{described} can be exported in no format, and is used as a checkpoint only"

    def _quietly(self, failure: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with warnings.catch_warnings():  # raised by torch about itself
                warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
                warnings.simplefilter("ignore", FutureWarning)
                return function(*arguments)
        except Exception as error:  # exporters, compilers and runtimes share no class
            extra = "; pip install graphrerank[onnx]" if isinstance(error, ImportError) else ""
            raise UserError(f"{failure}: {_reason(error)}{extra}") from error


def _reason(error: Exception) -> str:
    """Return the first line of a message, which is followed by listings of a program, and of its cause."""
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
