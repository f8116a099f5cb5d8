"""The common source of all formats: a model with its calibration, and the program that ``torch.export`` traces."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.fx.experimental._config as symbolic_config
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.models.manifest import Manifest, RerankerManifest

MACHINE_KEYS = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")  # name files and classes
Entry = dict[str, str]
INTEGERS = ("edge_index", "edge_type", "ptr", "degree")


def input_schema(manifest: Manifest) -> list[Entry]:
    """List the model's inputs, in order, with the manifest's shapes; ``[0, 0]`` marks vectors that are not read."""
    shapes = {**manifest.input_shapes, **dict.fromkeys(manifest.inputs.unread, "[0, 0]")}
    return [_entry(name, "int64" if name in INTEGERS else "float32", shapes[name]) for name in manifest.inputs.names]


def output_schema(manifest: Manifest) -> list[Entry]:
    """List the model's outputs, in order."""
    return [_entry(name, "float32", shape) for name, shape in manifest.output_shapes.items()]


def input_names(manifest: Manifest) -> dict[str, Sequence[str]]:
    """Return what the columns of ``base_features`` and the numbers of ``edge_type`` stand for, in order, if read."""
    names: dict[str, Sequence[str]] = {}
    if isinstance(manifest, RerankerManifest) and manifest.inputs.reads("base_features"):
        names["base_features"] = manifest.retriever.feature_names
    if manifest.inputs.reads_edge_types:
        names["edge_type"] = EDGE_TYPES
    return names


def symbols(entry: Mapping[str, str]) -> list[str | int]:
    """Return the sizes of an entry: integers, and strings if they are dynamic.

    Example:
        >>> symbols({"name": "x", "dtype": "float32", "shape": "[B + 1, 3]"})
        ['B + 1', 3]
    """
    sizes = entry["shape"].strip("[]").split(", ")
    return [int(size) if size.isdigit() else size for size in sizes]


def _entry(name: str, dtype: str, shape: str) -> Entry:
    return {"name": name, "dtype": dtype, "shape": shape}


@dataclass(frozen=True)
class Exportable:
    """A model to be exported."""

    model: nn.Module  # in evaluation mode, on the CPU
    calibration: nn.Module | None  # maps scores to probabilities
    inputs: Sequence[Entry]
    outputs: Sequence[Entry]
    example: tuple[Tensor, ...]  # inputs without a dynamic size of 0 or 1
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of the columns and numbers of inputs, by input

    @cached_property
    def program(self) -> ExportedProgram:
        """The traced model, with dynamic sizes as in the schema; a ValueError if it cannot be traced."""
        dynamic = tuple(
            {axis: Dim.DYNAMIC for axis, size in enumerate(symbols(entry)) if isinstance(size, str)}
            for entry in self.inputs
        )
        model, calibration = self.model, self.calibration
        hook = calibration and model.register_forward_hook(lambda module, inputs, scores: (scores, calibration(scores)))
        try:
            with torch.no_grad(), all_sizes_alike():
                program = torch.export.export(model, self.example, dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # torch.export raises almost anything
            raise ValueError(f"torch.export cannot trace this model: {error}") from error
        finally:
            if hook:
                hook.remove()
        for node in program.graph.nodes:
            for key in MACHINE_KEYS:
                node.meta.pop(key, None)
        return program


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

    def check_device(self, device: torch.device) -> None:
        """Raise a ValueError if the device is not the CPU."""
        if device.type != "cpu":
            raise ValueError(f"`device` must be cpu for the format {self._name}, got {device}")

    def outputs(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return all outputs; a ValueError if a tensor is not on the CPU."""
        for tensor in inputs:
            self.check_device(tensor.device)
        outputs = self._run(*(tensor.contiguous() for tensor in inputs))  # compiled code assumes the traced layout
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the scores."""
        return self.outputs(*inputs)[0]
