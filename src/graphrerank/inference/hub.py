"""Models to and from the Hugging Face hub: manifest and safetensors, which hold no program."""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphrerank.checks import UserError
from graphrerank.evaluation.tables import markdown_table
from graphrerank.extras import optional
from graphrerank.files import copy_file, write_text
from graphrerank.models.checkpoint import WEIGHTS, Checkpoint, save_weights
from graphrerank.models.manifest import MANIFEST, RerankerManifest, check_file, check_manifest, write_manifest
from graphrerank.untrusted import file_of

HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
SNAPSHOTS = "snapshots"  # of a model in the hub's cache: a folder for each commit


def is_hub_id(name: str) -> bool:
    """Return whether a name that is no path here could be one of the hub: ``owner/name``."""
    return HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def locate_model(name: str, *, revision: str | None = None) -> str:
    """Download the model of a hub's id, or find it in the hub's cache; return a path or a shipped name unchanged.

    The hub is that of ``HF_ENDPOINT`` (a mirror), else Hugging Face's; with ``HF_HUB_OFFLINE=1`` the cache alone counts
    (``HF_HUB_CACHE``). A ``revision`` is a branch, tag or commit; one that was downloaded is there without the network.
    """
    if not is_hub_id(name):
        if revision is not None:
            raise UserError(f"`revision` is of models from the hub, got {revision!r} for {name}")
        return name
    hub = optional("huggingface_hub", "a model of the hub")
    try:
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=[MANIFEST, WEIGHTS]))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        wanted = name if revision is None else f"{name} at {revision}"
        raise UserError(f"{wanted}: no such path here, and not to be had from {_hub_place()}: {error}") from error
    if missing := [file for file in (MANIFEST, WEIGHTS) if not (folder / file).is_file()]:
        raise UserError(f"{name}: needed {missing[0]} in the hub's repository, found none")
    return str(folder)


def model_source(name: str, located: str | Path) -> str:
    """Describe where a model was loaded from (:func:`locate_model`): its path, or of the hub the commit and the hub."""
    folder = Path(located)
    if str(located) == name or folder.parent.name != SNAPSHOTS:
        return str(located)
    return f"{name} at {folder.name}, of {_hub_place()}"


def _hub_place() -> str:
    """Name the hub that models come from: its address, and the cache where that alone is looked at."""
    constants = optional("huggingface_hub.constants", "a model of the hub")
    address = str(constants.ENDPOINT) + (" (HF_ENDPOINT)" if "HF_ENDPOINT" in os.environ else "")
    if constants.HF_HUB_OFFLINE:
        return f"the cache {constants.HF_HUB_CACHE} (HF_HUB_OFFLINE), not {address}"
    return address


def push_model(
    checkpoint: Checkpoint,
    repo_id: str,
    *,
    license_name: str,
    private: bool = True,
    token: str | None = None,
    runs: Sequence[str | Path] = (),
) -> str:
    """Upload a checkpoint with a model card, of an artifact all of its files, and return the repository's address.

    The repository ``repo_id``, ``owner/name``, is created if there is none, seen by its owner alone if ``private``;
    ``license_name`` is that of the weights, as the hub names it, and ``token`` that of ``hf auth login`` when None.
    ``runs`` are run folders of ``evaluate.py``, whose measures the card shows. A ValueError if the model is no
    reranker, a file of an artifact is a link or changed, or a run has no measures.
    """
    hub = optional("huggingface_hub", "a model of the hub")
    if not HUB_ID.fullmatch(repo_id):
        raise UserError(f"`repo_id` must be owner/name, got {repo_id!r}")
    card = model_card(checkpoint.reranker, repo_id, license_name, runs=runs)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        if (artifact := checkpoint.manifest.artifact) is not None:
            source = checkpoint.path.parent
            check_manifest(source, checkpoint.manifest)
            for name in artifact.sha256:
                check_file(source, checkpoint.manifest, name)
            for name in (MANIFEST, *artifact.sha256):
                copy_file(file_of(source, name), folder / name)
        else:
            save_weights(folder, checkpoint.model)
            write_manifest(folder, checkpoint.manifest.content)
        write_text(folder / "README.md", card)
        api = hub.HfApi(token=token)
        url = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="graphrerank model")
    return str(url)


CARD = """---
license: {license}
library_name: graphrerank
pipeline_tag: text-ranking
tags: [reranker, graph, graph-rag, retrieval]
---

# {repo_id}

A learned graph reranker, `{model}` of graphrerank: it scores a retriever's candidates together with the graph among
them. {needs}

```python
from graphrerank import GraphReranker

reranker = GraphReranker.from_pretrained({repo_id!r})
ranking = reranker.rerank(query, passages, scores=scores, edges=[(0, 3)]{more})
```

`from_pretrained` reads `manifest.json` and `model.safetensors` alone, which hold no program. Other formats do: load
them only if you trust their author. The manifest has the model's arguments and the SHA-256 of each file.

## What it reads
{features}

## Data
{data}

Candidates of the retriever {retriever}, with {scores}

## Measures
{measures}
"""


def model_card(manifest: RerankerManifest, repo_id: str, license_name: str, *, runs: Sequence[str | Path] = ()) -> str:
    """Write the card of a reranker in Markdown, with the hub's header; arguments as of :func:`push_model`."""
    more = ', edge_types=["citation"]' if manifest.inputs.reads_edge_types else ""
    needs = "It reads no embedding: scores of any retriever and any scale will do."
    if manifest.inputs.reads_vectors and manifest.encoder is not None:
        more += ", query_vector=query_vector, vectors=vectors"
        needs = f"Vectors must be those of {manifest.encoder.name}, of width {manifest.encoder.dim}."
    measures = [_table("data set/split", dict(sorted(manifest.metrics.items())), ".4f")] if manifest.metrics else []
    measures += [part for run in runs for part in _measured(run)]
    card = CARD.format(
        license=json.dumps(license_name),
        repo_id=repo_id,
        model=manifest.model.name,
        needs=needs,
        more=more,
        features="\n".join(f"- `{name}`" for name in manifest.features),
        data="\n".join(f"- {name}, fingerprint `{e.fingerprint[:12]}`" for name, e in manifest.trained_on.items()),
        retriever=manifest.retriever.choice,
        scores=", ".join(f"`{name}`" for name in manifest.retriever.feature_names),
        measures="\n\n".join(measures) or "None were kept with the checkpoint.",
    )
    if manifest.calibration is None:
        return card
    fitted: dict[str, Any] = {manifest.calibration.method: manifest.content["calibration"].get("fitted", {})}
    return f"{card}\n## Calibration\n\nOf the probabilities of relevance.\n\n{_table('method', fitted, '')}\n"


def _measured(run: str | Path) -> Iterator[str]:
    """Write a table of each data set that a run of ``evaluate.py`` measured: a row per system, in percent."""
    path = Path(run) / "metrics.json"
    try:
        for name, entry in json.loads(path.read_text(encoding="utf-8"))["datasets"].items():
            rows: dict[str, dict[str, float]] = {}
            for system, means in entry["systems"].items():
                kept = {key: mean for key, mean in means.items() if "@" in key and "/" not in key}
                rows[system] = {key: 100 * mean for key, mean in kept.items() if mean is not None}
            yield (
                f"### {name}\n\n{entry['queries']:,} queries of {entry['split']}, by `graphrerank evaluate`; percent. "
                f"The candidates hold {100 * entry['ceiling']:.1f}% of the relevant passages."
            )
            yield _table("system", rows, ".1f")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: needed the measures of a run of evaluate.py, found none ({error!r})") from error


def _table(corner: str, rows: Mapping[str, Mapping[str, Any]], form: str) -> str:
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [[name, *(f"{row[key]:{form}}" if key in row else "" for key in names)] for name, row in rows.items()]
    return markdown_table([corner, *names], cells)
