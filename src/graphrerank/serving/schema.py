"""Inputs and outputs of an exported model: names, types, and shapes with symbols for dynamic sizes."""

from collections.abc import Mapping, Sequence

from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.models.manifest import Manifest, RerankerManifest

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
