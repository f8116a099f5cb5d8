"""What an exported model takes and gives: names, types, and shapes with symbols for the sizes that may change."""

from collections.abc import Mapping
from typing import Any

from graphrerank.graphs.calibration import read_calibration
from graphrerank.models.checkpoint import manifest_entry, reads_pairs, reads_vectors, scores_queries

Entry = dict[str, str]


def input_schema(manifest: Mapping[str, Any]) -> list[Entry]:
    """List what the model takes, in order: ``N`` candidates of ``B`` queries with ``E`` edges.

    A shape ``[0, 0]`` marks vectors that the model does not read. The complexity adapter takes ``n`` queries alone.
    """
    if scores_queries(manifest):
        num_features = manifest_entry(manifest, "model", "arguments", "num_features")
        return [_entry("features", "float32", f"[n, {num_features}]")]
    if reads_pairs(manifest):
        return [
            _entry("pair_vectors", "float32", f"[N, {manifest_entry(manifest, 'pair_encoder', 'dim')}]"),
            _entry("edge_index", "int64", "[2, E]"),
            _entry("degree", "int64", "[N]"),
        ]
    num_scores = len(manifest_entry(manifest, "retriever", "feature_names"))
    read = reads_vectors(manifest)
    dim = manifest_entry(manifest, "encoder", "dim") if read else 0
    return [
        _entry("base_features", "float32", f"[N, {num_scores}]"),
        _entry("query_vectors", "float32", f"[B, {dim}]" if read else "[0, 0]"),
        _entry("node_vectors", "float32", f"[N, {dim}]" if read else "[0, 0]"),
        _entry("edge_index", "int64", "[2, E]"),
        _entry("edge_weight", "float32", "[E]"),
        _entry("ptr", "int64", "[B + 1]"),
    ]


def output_schema(manifest: Mapping[str, Any]) -> list[Entry]:
    """List what the model gives, in order: scores, and their probabilities where it holds a calibration.

    TorchScript gives the scores, and its ``calibration`` maps them to probabilities; all other formats give both.
    """
    shape = "[n]" if scores_queries(manifest) else "[N]"
    scores = [_entry("scores", "float32", shape)]
    return scores if read_calibration(manifest) is None else [*scores, _entry("probabilities", "float32", shape)]


def symbols(entry: Mapping[str, str]) -> list[str | int]:
    """Return the sizes of an entry: numbers, and texts where they may change.

    Example:
        >>> symbols({"name": "x", "dtype": "float32", "shape": "[B + 1, 3]"})
        ['B + 1', 3]
    """
    sizes = entry["shape"].strip("[]").split(", ")
    return [int(size) if size.isdigit() else size for size in sizes]


def _entry(name: str, dtype: str, shape: str) -> Entry:
    return {"name": name, "dtype": dtype, "shape": shape}
