"""Model cards: a README in the format of the Hugging Face hub, written from the manifest of a checkpoint."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.checks import UserError
from graphrerank.utils.markdown import markdown_table
from graphrerank.utils.run_files import METRICS, NOT_MEANS

MODEL_CARD = "README.md"
UNKNOWN_LICENSE = "No licence was stated for the weights."

TEMPLATE = """---
{header}
---

# {title}

A learned graph reranker, `{model}` of graphrerank{parameters}. It scores the candidates of a retriever together with
the graph among them. {vectors}

## How to load it

```python
from graphrerank import GraphReranker

reranker = GraphReranker.from_pretrained({location!r})
ranking = reranker.rerank(query, passages, scores=scores, edges=[(0, 3)]{arguments})
```

`from_pretrained` reads only `manifest.json` and `model.safetensors`, which cannot execute code. Load other formats only
if you trust their author. The command line accepts the same name: `graphrerank serve checkpoint={location}`.

## Inputs

{features}

## Training

Candidates of the retriever `{retriever}`, with the scores {scores}. Trained on:

{data}

{command}

## Measures

{measures}
{calibration}
## Versions

{versions}

## Licence

{license}
"""


def model_card(
    manifest: RerankerManifest,
    name: str,
    *,
    license_name: str | None = None,
    runs: Sequence[str | Path] = (),
) -> str:
    """Write the model card of a reranker.

    Args:
        manifest: Manifest of the reranker.
        name: Name to load the reranker by: a path, or ``owner/name`` of the hub.
        license_name: Licence of the weights, as the hub abbreviates it, such as ``apache-2.0``. If None, the card says
            that no licence was stated.
        runs: Run folders of ``graphrerank evaluate`` whose measures are added.

    Returns:
        The card in Markdown, with the header of the hub.

    Raises:
        UserError: If a run has no measures.
    """
    content = manifest.content
    return TEMPLATE.format(
        header="\n".join(_header(license_name)),
        title=name.rstrip("/").rsplit("/", 1)[-1] if Path(name).is_absolute() else name,
        location=name,
        model=manifest.model.name,
        parameters=_parameters(content),
        vectors=_vectors(manifest),
        arguments=_arguments(manifest),
        features="\n".join(f"- `{feature}`" for feature in manifest.features),
        retriever=manifest.retriever.choice,
        scores=", ".join(f"`{score}`" for score in manifest.retriever.feature_names),
        data="\n".join(
            f"- {dataset}, fingerprint `{entry.fingerprint[:12]}`" for dataset, entry in manifest.trained_on.items()
        ),
        command=_command(content),
        measures="\n\n".join(_measures(manifest, runs)),
        calibration=_calibration(manifest),
        versions=", ".join(f"{library} {number}" for library, number in content.get("versions", {}).items()),
        license=UNKNOWN_LICENSE if license_name is None else f"Weights: {license_name}.",
    )


def _header(license_name: str | None) -> Iterator[str]:
    if license_name is not None:
        yield f"license: {json.dumps(license_name)}"
    yield "library_name: graphrerank"
    yield "pipeline_tag: text-ranking"
    yield "tags: [reranker, graph, graph-rag, retrieval]"


def _parameters(content: Mapping[str, Any]) -> str:
    count = content.get("parameters", {}).get("all")
    return "" if count is None else f", with {count:,} parameters"


def _vectors(manifest: RerankerManifest) -> str:
    if manifest.inputs.reads_vectors and manifest.encoder is not None:
        return f"The vectors must be those of {manifest.encoder.name}, which have {manifest.encoder.dim} dimensions."
    return "It reads no vectors, so it works with the scores of any retriever on any scale."


def _arguments(manifest: RerankerManifest) -> str:
    types = ', edge_types=["reference"]' if manifest.inputs.reads_edge_types else ""
    reads_vectors = manifest.inputs.reads_vectors and manifest.encoder is not None
    return types + (", query_vector=query_vector, vectors=vectors" if reads_vectors else "")


def _command(content: Mapping[str, Any]) -> str:
    command = content.get("command")
    return "Trained in Python." if command is None else f"Command:\n\n```\n{command}\n```"


def _measures(manifest: RerankerManifest, runs: Sequence[str | Path]) -> Iterator[str]:
    if manifest.metrics:
        yield _table("data set/split", dict(sorted(manifest.metrics.items())), ".4f")
    validation = manifest.content.get("validation")
    if validation is not None:
        yield f"Best epoch by {validation['measure']}: {validation['score']:.4f}."
    for run in runs:
        yield from _run_measures(Path(run))
    if not manifest.metrics and validation is None and not runs:
        yield "The checkpoint has no measures."


def _run_measures(run: Path) -> Iterator[str]:
    """Yield a sentence and a table for each data set of a run of ``graphrerank evaluate``, in percent."""
    path = run / METRICS
    try:
        for name, entry in json.loads(path.read_text(encoding="utf-8"))["datasets"].items():
            rows = {
                system: {
                    measure: 100 * mean
                    for measure, mean in means.items()
                    if measure not in NOT_MEANS and isinstance(mean, float) and "/" not in measure
                }
                for system, means in entry["systems"].items()
            }
            queries = f"{entry['queries']:,} queries of {entry['split']}"
            yield f"### {name}\n\n{queries}, by `graphrerank evaluate`, in percent."
            yield _table("system", rows, ".1f")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected the measures of a run of graphrerank evaluate ({error!r})") from error


def _calibration(manifest: RerankerManifest) -> str:
    if manifest.calibration is None:
        return ""
    fitted = manifest.content["calibration"].get("fitted", {})
    row = {name: value for name, value in fitted.items() if isinstance(value, int | float | str)}
    table = _table("method", {manifest.calibration.method: row}, "")
    return f"\n## Calibration\n\nScores are calibrated to probabilities of relevance.\n\n{table}\n"


def _table(corner: str, rows: Mapping[str, Mapping[str, Any]], number_format: str) -> str:
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [
        [name, *(f"{row[column]:{number_format}}" if column in row else "" for column in columns)]
        for name, row in rows.items()
    ]
    return markdown_table([corner, *columns], cells)
