"""Artifacts: what serves. A folder of TorchScript, weights and a manifest that holds the proof that they agree.

An artifact is a checkpoint folder (``manifest.json``, ``model.safetensors``) with ``model.pt`` beside it and an
``artifact`` entry in the manifest: input schema, parity measured at export, and the SHA-256 of both files. A hash
guards against damage and mix-ups, not against malice: TorchScript is a program, load it only from whom you trust.
"""

import copy
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from graphrerank.files import hash_files
from graphrerank.graphs import CandidateGraphs
from graphrerank.models import Checkpoint, GRankerHead, load_checkpoint
from graphrerank.models.checkpoint import (
    MANIFEST,
    WEIGHTS,
    manifest_entry,
    manifest_folder,
    model_name,
    read_manifest,
    reads_pairs,
    reads_vectors,
    save_weights,
    scores_queries,
    write_manifest,
)
from graphrerank.models.granker_layers import GRankerLayers

SCRIPT = "model.pt"
FORMAT = "torchscript"
TOLERANCE = 1e-5  # largest difference of a score, absolute
MANY_EDGES = 2000
NUM_PASSES = 2  # TorchScript profiles on the first call of a graph and runs optimised code from the second


@dataclass(frozen=True)
class Artifact:
    """An exported model.

    Attributes:
        module: The scripted model, in evaluation mode; it takes what ``manifest["artifact"]["inputs"]`` lists.
        manifest: The checkpoint's manifest with the ``artifact`` entry.
        folder: Where it lies.
    """

    module: torch.jit.ScriptModule
    manifest: dict[str, Any]
    folder: Path


class ModelInputs(Protocol):
    """What a model scores in one call."""

    def model_inputs(self) -> tuple[Tensor, ...]:
        """Return the arguments of ``forward``."""


@dataclass(frozen=True)
class QueryFeatures:
    """What the complexity adapter scores in one call.

    Attributes:
        x: ``[n, F]`` raw features of queries.
    """

    x: Tensor

    def model_inputs(self) -> tuple[Tensor, ...]:
        """Return the arguments of ``forward``."""
        return (self.x,)


def export_artifact(checkpoint: Checkpoint, folder: Path) -> Path:
    """Script a checkpoint's model, prove that the files score as the model does, and only then put them in place.

    Everything is written under a temporary name, read back and compared with the eager model (:func:`parity_graphs`),
    then renamed. A failed export leaves nothing behind and an older artifact as it was.

    Of a model with a cross-encoder's layers the head is exported, and ``pair_encoder`` of the manifest names the folder
    of the trained cross-encoder, which gives the vectors.

    Args:
        checkpoint: The model and its manifest.
        folder: Where the artifact goes: a new or empty folder, or an older artifact, which is replaced.

    Returns:
        The artifact's folder.

    Raises:
        ValueError: If ``folder`` holds anything but an artifact, the manifest lacks an entry, a trained cross-encoder
            is not there, or the scripted model or the one rebuilt from manifest and weights does not score as the
            eager model does.
    """
    folder = folder.resolve()
    _check_target(folder)
    if isinstance(checkpoint.model, GRankerLayers):
        checkpoint = _head_alone(checkpoint, checkpoint.model)
    manifest = {key: entry for key, entry in checkpoint.manifest.items() if key != "artifact"}
    inputs = parity_queries(manifest) if scores_queries(manifest) else parity_graphs(manifest)
    eager = copy.deepcopy(checkpoint.model).cpu().eval()
    parent = next(path for path in folder.parents if path.is_dir())
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", suffix=".tmp", dir=parent) as work:
        new = Path(work) / "new"
        new.mkdir()
        with _without_deprecation():
            torch.jit.save(torch.jit.script(eager), str(Path(work) / SCRIPT))
        _copy_without_debug_records(Path(work) / SCRIPT, new / SCRIPT)
        save_weights(new, eager)
        write_manifest(new, manifest)
        differences = [
            parity_difference(eager, _load_script(new / SCRIPT), inputs, name="the scripted model"),
            parity_difference(eager, load_checkpoint(new).model, inputs, name="the model rebuilt from its weights"),
        ]
        entry = {
            "format": FORMAT,
            "inputs": input_schema(manifest),
            "output": {"name": "scores", "dtype": "float32", "shape": "[n]" if scores_queries(manifest) else "[N]"},
            "parity": {"max_difference": max(differences), "tolerance": TOLERANCE, "graphs": len(inputs)},
            "sha256": {name: hash_files([new / name]) for name in (SCRIPT, WEIGHTS)},
        }
        write_manifest(new, {**manifest, "artifact": entry})
        _put_in_place(new, folder)
    return folder


def _head_alone(checkpoint: Checkpoint, model: GRankerLayers) -> Checkpoint:
    """Take the head of a model with layers; its manifest names the folder of the cross-encoder that holds these.

    Raises:
        ValueError: If training has not finished, or the folder is not there.
    """
    manifest = {key: entry for key, entry in checkpoint.manifest.items() if key != "fine_tuned"}
    fine_tuned = checkpoint.manifest.get("fine_tuned")
    if not fine_tuned:
        raise ValueError(f"{checkpoint.path}: has trained layers, whose encoder is written when training has finished")
    encoder = (manifest_folder(checkpoint.path) / manifest_entry(fine_tuned, "folder")).resolve()
    if not encoder.is_dir():
        raise ValueError(f"{encoder}: no such folder; needed the cross-encoder whose vectors the head reads")
    arguments = manifest_entry(manifest, "model", "arguments")
    head = {name: argument for name, argument in arguments.items() if name not in ("train_last_layers", "encoder")}
    pair_encoder = manifest_entry(manifest, "pair_encoder")
    of_pairs = {**manifest_entry(pair_encoder, "arguments"), "model": str(encoder), "revision": None}
    manifest |= {
        "model": {"name": model_name(GRankerHead), "arguments": head},
        "features": model.granker.feature_names([]),
        "pair_encoder": {
            **pair_encoder,
            "arguments": of_pairs,
            "fingerprint": manifest_entry(fine_tuned, "fingerprint"),
        },
    }
    return Checkpoint(model.granker, manifest, checkpoint.path)


def load_artifact(folder: Path) -> Artifact:
    """Load an artifact and check its files against the manifest.

    Raises:
        ValueError: If a file is missing, damaged or not the one that was exported, or the folder is no artifact.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such artifact")
    manifest = read_manifest(folder)
    if not isinstance(manifest.get("artifact"), dict):
        raise ValueError(
            f"{folder}: not an artifact, its manifest has no `artifact`; make one with serve.py mode=export"
        )
    if (found := manifest_entry(manifest, "artifact", "format")) != FORMAT:
        raise ValueError(f"{folder}: needed an artifact in the format {FORMAT!r}, found {found!r}")
    for name in (SCRIPT, WEIGHTS):
        needed = manifest_entry(manifest, "artifact", "sha256", name)
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: no such file; export the artifact again")
        if (sha256 := hash_files([folder / name])) != needed:
            raise ValueError(f"{folder / name}: needed SHA-256 {needed}, found {sha256}; export the artifact again")
    return Artifact(_load_script(folder / SCRIPT), manifest, folder)


def parity_difference(
    eager: nn.Module,
    other: Callable[..., Tensor],
    inputs: Mapping[str, ModelInputs],
    *,
    name: str = "the exported model",
    tolerance: float = TOLERANCE,
) -> float:
    """Measure how far another form of a model is from the eager one.

    Args:
        eager: The model, in evaluation mode.
        other: Takes the same tensors.
        inputs: Named graphs, or features of queries, to score, each ``NUM_PASSES`` times.
        name: What ``other`` is called in errors.
        tolerance: Largest absolute difference of a score.

    Returns:
        The largest absolute difference of a score.

    Raises:
        ValueError: If a score is not finite, scores differ by more than ``tolerance`` or in shape, or a model fails;
            names the graph.
    """
    worst = 0.0
    for _ in range(NUM_PASSES):
        for graph_name, graph in inputs.items():
            try:
                with torch.inference_mode():
                    expected, found = eager(*graph.model_inputs()), other(*graph.model_inputs())
            except (RuntimeError, torch.jit.Error) as error:
                raise ValueError(f"{name} or the eager one fails on the graph {graph_name!r}: {error}") from error
            if found.shape != expected.shape:
                shapes = f"{list(found.shape)}, not {list(expected.shape)}"
                raise ValueError(f"{name} gives scores of shape {shapes}, on the graph {graph_name!r}")
            difference = (found - expected).abs().max().item()
            if not difference <= tolerance:  # also where it is NaN
                raise ValueError(
                    f"{name} and the eager one must agree within {tolerance}, "
                    f"got a difference of {difference} on the graph {graph_name!r}"
                )
            worst = max(worst, difference)
    return worst


def parity_graphs(manifest: Mapping[str, Any]) -> dict[str, CandidateGraphs]:
    """Make the graphs of the parity gate, the same ones each time.

    1 and 200 nodes with 0, 1 and many edges in any order, among them self-loops and parallel edges, and a packed batch
    of graphs of 1, 7, 200, 0 and 3 nodes. Scores are rounded, so that there are ties.
    """
    generator = torch.Generator().manual_seed(0)
    graphs = {
        f"nodes={num_nodes}, edges={num_edges}": _random_graphs(manifest, [num_nodes], num_edges, generator)
        for num_nodes in (1, 200)
        for num_edges in (0, 1, MANY_EDGES)
    }
    return {**graphs, "packed batch": _random_graphs(manifest, [1, 7, 200, 0, 3], MANY_EDGES, generator)}


def parity_queries(manifest: Mapping[str, Any]) -> dict[str, QueryFeatures]:
    """Make the raw features of the complexity adapter's parity gate: one and 300 queries, and ones far out."""
    generator = torch.Generator().manual_seed(0)
    num_features = manifest_entry(manifest, "model", "arguments", "num_features")
    rows = {f"queries={n}": 5 * torch.randn(n, num_features, generator=generator) for n in (1, 300)}
    far = torch.tensor([[0.0], [1e6], [-1e6]]).expand(3, num_features)
    return {name: QueryFeatures(x) for name, x in {**rows, "far out": far}.items()}


def input_schema(manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    """List what the scripted model takes, in order: ``N`` candidates of ``B`` queries with ``E`` edges.

    A shape ``[0, 0]`` marks vectors that the model does not read. The complexity adapter takes ``n`` queries alone.
    """
    if scores_queries(manifest):
        num_features = manifest_entry(manifest, "model", "arguments", "num_features")
        return [{"name": "features", "dtype": "float32", "shape": f"[n, {num_features}]"}]
    if reads_pairs(manifest):
        return [
            {
                "name": "pair_vectors",
                "dtype": "float32",
                "shape": f"[N, {manifest_entry(manifest, 'pair_encoder', 'dim')}]",
            },
            {"name": "edge_index", "dtype": "int64", "shape": "[2, E]"},
            {"name": "degree", "dtype": "int64", "shape": "[N]"},
        ]
    num_scores = len(manifest_entry(manifest, "retriever", "feature_names"))
    read = reads_vectors(manifest)
    dim = manifest_entry(manifest, "encoder", "dim") if read else 0
    return [
        {"name": "base_features", "dtype": "float32", "shape": f"[N, {num_scores}]"},
        {"name": "query_vectors", "dtype": "float32", "shape": f"[B, {dim}]" if read else "[0, 0]"},
        {"name": "node_vectors", "dtype": "float32", "shape": f"[N, {dim}]" if read else "[0, 0]"},
        {"name": "edge_index", "dtype": "int64", "shape": "[2, E]"},
        {"name": "edge_weight", "dtype": "float32", "shape": "[E]"},
        {"name": "ptr", "dtype": "int64", "shape": "[B + 1]"},
    ]


def _random_graphs(
    manifest: Mapping[str, Any], sizes: list[int], num_edges: int, generator: torch.Generator
) -> CandidateGraphs:
    num_nodes = sum(sizes)
    num_scores = len(manifest_entry(manifest, "retriever", "feature_names"))
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    target = torch.randint(num_nodes, (num_edges,), generator=generator)
    graph = torch.searchsorted(ptr, target, right=True) - 1
    share = torch.rand(num_edges, generator=generator)  # where in the target's own graph the source lies
    source = ptr[graph] + (share * (ptr[graph + 1] - ptr[graph])).long()
    vectors = reads_vectors(manifest)
    dim = manifest_entry(manifest, "encoder", "dim") if vectors else 0
    pair_vectors = degree = None
    if reads_pairs(manifest):
        pair_vectors = torch.randn(num_nodes, manifest_entry(manifest, "pair_encoder", "dim"), generator=generator)
        degree = torch.bincount(target, minlength=num_nodes) + torch.randint(9, (num_nodes,), generator=generator)
    return CandidateGraphs(
        x=(torch.randn(num_nodes, num_scores, generator=generator) * 20).round() / 20,
        edge_index=torch.stack([source, target]),
        edge_attr=torch.rand(num_edges, generator=generator) + 0.1,
        ptr=ptr,
        query_vectors=_unit_vectors(len(sizes), dim, generator) if vectors else None,
        node_vectors=_unit_vectors(num_nodes, dim, generator) if vectors else None,
        pair_vectors=pair_vectors,
        degree=degree,
    )


def _unit_vectors(count: int, dim: int, generator: torch.Generator) -> Tensor:
    return nn.functional.normalize(torch.randn(count, dim, generator=generator), dim=1)


def _check_target(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder}: needed a folder for the artifact, found a file")
    found = {file.name for file in folder.iterdir()}
    if not found:
        return
    strangers = sorted(found - {SCRIPT, WEIGHTS, MANIFEST})
    if strangers or MANIFEST not in found or "artifact" not in read_manifest(folder):
        held = f"{strangers[0]!r}" if strangers else "no manifest of an artifact"
        raise ValueError(f"{folder}: needed an empty folder or an artifact to replace, found {held}; choose another")


def _put_in_place(new: Path, folder: Path) -> None:
    old = new.with_name("old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise


def _copy_without_debug_records(source: Path, target: Path) -> None:
    """Copy a TorchScript archive without its debug records, which name source files of the exporting machine."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:  # stored, as torch's reader needs
        for record in old.infolist():
            if not record.filename.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(record.filename), old.read(record))


def _load_script(path: Path) -> torch.jit.ScriptModule:
    try:
        with _without_deprecation():
            module: torch.jit.ScriptModule = torch.jit.load(str(path), "cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(f"{path}: not TorchScript that this torch can load: {error}") from error
    return module


@contextmanager
def _without_deprecation() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")  # TorchScript is our contract
        yield
