"""A model card: what a reader of the Hugging Face hub sees, written from the manifest alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.models.manifest import RerankerManifest


@dataclass(frozen=True)
class Measured:
    """What ``evaluate.py`` measured on one data set."""

    name: str  # of the data set
    split: str
    num_queries: int
    ceiling: float  # share of what is relevant that the candidates hold, in [0, 1]
    systems: Mapping[str, Mapping[str, Any]]  # measures by name, by the names of rows


def read_measured(run: str | Path) -> list[Measured]:
    """Read the measures of a run of ``evaluate.py``.

    Raises:
        ValueError: If the folder has no ``metrics.json`` of an evaluation.
    """
    path = Path(run) / "metrics.json"
    try:
        datasets = json.loads(path.read_text(encoding="utf-8"))["datasets"]
        return [
            Measured(name, entry["split"], int(entry["queries"]), float(entry["ceiling"]), entry["systems"])
            for name, entry in datasets.items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: needed the measures of a run of evaluate.py, found none ({error!r})") from error


def model_card(
    manifest: RerankerManifest, repo_id: str, license_name: str, *, measured: Sequence[Sequence[Measured]] = ()
) -> str:
    """Write the card of a reranker: use, features, data, measures, files, in Markdown with the hub's header.

    Args:
        manifest: Of the checkpoint or artifact.
        repo_id: Where the model will be, ``owner/name``.
        license_name: Of the weights, as the hub names it: ``apache-2.0``, ``mit``, ``other``.
        measured: Of each run of ``evaluate.py``, what it measured: a table per data set, all of its systems.
    """
    parts = [
        _header(license_name),
        f"# {repo_id}",
        f"A learned graph reranker, `{manifest.model.name}` of graphrerank: it scores a "
        "retriever's candidates together with the graph among them.",
        *_usage(manifest, repo_id),
        "## What it reads",
        "\n".join(f"- `{name}`" for name in manifest.features),
        "## Data",
        "\n".join(_data(manifest)),
        "## Measures",
        _measures(manifest),
        *(part for run in measured for dataset in run for part in _measured(dataset)),
        *_calibration(manifest),
        *_files(manifest),
        "## Model",
        "```json\n" + json.dumps(manifest.content["model"], indent=2, sort_keys=True) + "\n```",
        f"Licence: {license_name}",
    ]
    return "\n\n".join(parts) + "\n"


def _header(license_name: str) -> str:
    lines = [f"license: {json.dumps(license_name)}", "library_name: graphrerank", "pipeline_tag: text-ranking"]
    return "\n".join(["---", *lines, "tags: [reranker, graph, graph-rag, retrieval]", "---"])


def _usage(manifest: RerankerManifest, repo_id: str) -> Iterator[str]:
    types = ', edge_types=["citation"]' if manifest.inputs.reads_edge_types else ""
    vectors = ", query_vector=query_vector, vectors=vectors" if manifest.inputs.reads_vectors else ""
    yield "## Use"
    yield "\n".join(
        [
            "```python",
            "from graphrerank import GraphReranker",
            "",
            f"reranker = GraphReranker.from_pretrained({repo_id!r})",
            f"ranking = reranker.rerank(query, passages, scores=scores, edges=[(0, 3)]{types}{vectors})",
            "```",
        ]
    )
    if vectors and manifest.encoder is not None:
        yield f"Vectors must be those of {manifest.encoder.name}, of width {manifest.encoder.dim}."
    else:
        yield "It reads no embedding: scores of any retriever and any scale will do."


def _data(manifest: RerankerManifest) -> Iterator[str]:
    for name, entry in manifest.trained_on.items():
        yield f"- {name}, fingerprint `{entry.fingerprint[:12]}`"
    scores = ", ".join(f"`{name}`" for name in manifest.retriever.feature_names)
    yield f"- candidates of the retriever {manifest.retriever.choice}, with {scores}"


def _measures(manifest: RerankerManifest) -> str:
    from graphrerank.evaluation.tables import markdown_table

    metrics = manifest.metrics
    if not metrics:
        return "None were kept with the checkpoint."
    names = sorted({name for row in metrics.values() for name in row})
    rows = [
        [split, *(f"{row[name]:.4f}" if name in row else "" for name in names)]
        for split, row in sorted(metrics.items())
    ]
    return markdown_table(["data set/split", *names], rows)


def _measured(dataset: Measured) -> Iterator[str]:
    """Write a data set's table: a row per system, measures in percent."""
    from graphrerank.evaluation.tables import markdown_table

    names = [name for name, mean in next(iter(dataset.systems.values())).items() if isinstance(mean, float)]
    names = [name for name in names if "@" in name and "/" not in name]
    yield f"### {dataset.name}"
    yield (
        f"{dataset.num_queries:,} queries of {dataset.split}, by `graphrerank evaluate`; percent. The candidates hold "
        f"{100 * dataset.ceiling:.1f}% of what is relevant."
    )
    rows = [
        [system, *(f"{100 * means[name]:.1f}" if isinstance(means.get(name), float) else "" for name in names)]
        for system, means in dataset.systems.items()
    ]
    yield markdown_table(["system", *names], rows)


def _calibration(manifest: RerankerManifest) -> Iterator[str]:
    if manifest.calibration is None:
        return
    yield "## Calibration"
    text = f"`probabilities` come of a calibration by the method {manifest.calibration.method}"
    fitted = manifest.content["calibration"].get("fitted", {})
    if {"datasets", "split", "pairs", "ece"} <= set(fitted):
        text += (
            f", fitted on {fitted['pairs']} pairs of {', '.join(fitted['datasets'])} ({fitted['split']}); expected "
            f"calibration error there {fitted['ece']:.4f}"
        )
    yield text + "."


def _files(manifest: RerankerManifest) -> Iterator[str]:
    if manifest.artifact is None:
        return
    yield "## Files"
    yield "\n".join(f"- `{name}`, SHA-256 `{sha256}`" for name, sha256 in sorted(manifest.artifact.sha256.items()))
    yield (
        "`from_pretrained` reads `manifest.json` and `model.safetensors` alone, which hold no program. The other "
        "formats do: load them only if you trust whoever made them."
    )
