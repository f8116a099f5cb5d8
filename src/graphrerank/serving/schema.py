"""Inputs and outputs of an exported model: names, types, and shapes with symbols for dynamic sizes."""

from collections.abc import Mapping, Sequence

from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.models.manifest import AdapterManifest, Manifest, RerankerManifest

Entry = dict[str, str]


def input_schema(manifest: Manifest) -> list[Entry]:
    """List the model's inputs, in order: ``N`` candidates of ``B`` queries with ``E`` edges.

    A shape ``[0, 0]`` marks vectors that the model does not read. The complexity adapter reads ``n`` queries only.
    """
    floats = {"features": "[n, 0]", "edge_weight": "[E]"}
    if isinstance(manifest, AdapterManifest):
        floats["features"] = f"[n, {manifest.num_features}]"
    elif isinstance(manifest, RerankerManifest):
        dim, pair_dim = manifest.embedding_dim, manifest.pair_encoder and manifest.pair_encoder.dim
        floats["base_features"] = f"[N, {len(manifest.retriever.feature_names)}]"
        floats |= {"query_vectors": f"[B, {dim}]", "node_vectors": f"[N, {dim}]", "pair_vectors": f"[N, {pair_dim}]"}
    floats |= dict.fromkeys(manifest.inputs.unread, "[0, 0]")
    integers = {"edge_index": "[2, E]", "edge_type": "[E]", "ptr": "[B + 1]", "degree": "[N]"}
    return [
        _entry(name, "int64", integers[name]) if name in integers else _entry(name, "float32", floats[name])
        for name in manifest.inputs.names
    ]


def output_schema(manifest: Manifest) -> list[Entry]:
    """List the model's outputs, in order: scores, and their probabilities if it is calibrated.

    TorchScript returns the scores, and its ``calibration`` maps them to probabilities; all other formats return both.
    """
    if isinstance(manifest, RerankerManifest):
        names = ["scores"] if manifest.calibration is None else ["scores", "probabilities"]
        return [_entry(name, "float32", "[N]") for name in names]
    return [_entry("scores", "float32", "[n]")]


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
