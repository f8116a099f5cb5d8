"""Models to and from the Hugging Face hub: manifest and safetensors, and no program unless you name it."""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.extras import optional
from graphrerank.files import copy_file, write_text
from graphrerank.models.checkpoint import WEIGHTS, Checkpoint, save_weights
from graphrerank.models.manifest import MANIFEST, RerankerManifest, check_file, check_manifest, write_manifest
from graphrerank.untrusted import file_of

HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
CARD = "README.md"
SNAPSHOTS = "snapshots"  # of a model in the hub's cache: a folder for each commit


def is_hub_id(name: str) -> bool:
    """Return whether a name that is no path here could be one of the hub: ``owner/name``.

    Example:
        >>> is_hub_id("owner/name"), is_hub_id("base"), is_hub_id("./owner/name")
        (True, False, False)
    """
    return HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def download_model(hub_id: str, *, revision: str | None = None, files: Sequence[str] = ()) -> Path:
    """Download a model from the hub, or find it in the hub's cache.

    The hub is that of ``HF_ENDPOINT`` (a mirror), else Hugging Face's; with ``HF_HUB_OFFLINE=1`` the cache alone counts
    (``HF_HUB_CACHE``). A revision that was downloaded once is there again without the network.

    Args:
        hub_id: ``owner/name``.
        revision: A branch, tag or commit; the newest when None. Name a commit to get the same files forever.
        files: Names of further files, as ``model.pt``. TorchScript and its like are programs: name them only if you
            trust the owner.

    Returns:
        A folder with ``manifest.json``, ``model.safetensors`` and the further files.

    Raises:
        ValueError: If the hub cannot be reached, or has no such model or file; names the hub, or the cache if offline.
    """
    huggingface_hub = optional("huggingface_hub", "a model of the hub")

    needed = [MANIFEST, WEIGHTS, *files]
    try:
        folder = Path(huggingface_hub.snapshot_download(hub_id, revision=revision, allow_patterns=needed))
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        wanted = hub_id if revision is None else f"{hub_id} at {revision}"
        raise ValueError(f"{wanted}: no such path here, and not to be had from {hub_place()}: {error}") from error
    if missing := [name for name in needed if not (folder / name).is_file()]:
        raise ValueError(f"{hub_id}: needed {missing[0]} in the hub's repository, found none")
    return folder


def hub_place() -> str:
    """Name the hub that models come from: its address, and the cache where that alone is looked at.

    Example:
        >>> hub_place()  # doctest: +SKIP
        'the cache /home/me/.cache/huggingface/hub (HF_HUB_OFFLINE), not https://hub.test (HF_ENDPOINT)'
    """
    constants = optional("huggingface_hub.constants", "a model of the hub")
    address = str(constants.ENDPOINT) + (" (HF_ENDPOINT)" if "HF_ENDPOINT" in os.environ else "")
    if constants.HF_HUB_OFFLINE:
        return f"the cache {constants.HF_HUB_CACHE} (HF_HUB_OFFLINE), not {address}"
    return address


def model_source(name: str, located: str | Path) -> str:
    """Say where a model was loaded from: of the hub the commit, by which the same files come again, and the hub.

    Args:
        name: As the caller gave it.
        located: Its path, as :func:`locate_model` returns it.

    Example:
        >>> model_source("base", "base")
        'base'
    """
    folder = Path(located)
    if str(located) == name or folder.parent.name != SNAPSHOTS:
        return str(located)
    return f"{name} at {folder.name}, of {hub_place()}"


def locate_model(name: str, *, revision: str | None = None) -> str:
    """Download the model of a hub's id; return a path or a shipped name unchanged.

    Args:
        name: A path, the name of a checkpoint that ships, or ``owner/name``.
        revision: As :func:`download_model`.

    Raises:
        ValueError: If a revision is given for a model that is not on the hub, or as :func:`download_model`.
    """
    if is_hub_id(name):
        return str(download_model(name, revision=revision))
    if revision is not None:
        raise ValueError(f"`revision` is of models from the hub, got {revision!r} for {name}")
    return name


def push_model(
    checkpoint: Checkpoint,
    repo_id: str,
    *,
    license_name: str,
    private: bool = True,
    token: str | None = None,
    runs: Sequence[str | Path] = (),
) -> str:
    """Upload a checkpoint with a model card; of an artifact all of its files.

    Args:
        checkpoint: The model and its manifest.
        repo_id: ``owner/name``; made where there is none.
        license_name: Of the weights, as the hub names it.
        private: Whether a new repository is seen by its owner alone.
        token: The hub's; the one of ``hf auth login`` when None.
        runs: Run folders of ``evaluate.py``, whose measures the card shows, a table per data set.

    Returns:
        The repository's address.

    Raises:
        ValueError: If ``repo_id`` is none, the model is no reranker, or a file of an artifact is a link or was changed,
            or a run holds no ``metrics.json`` of an evaluation.
    """
    huggingface_hub = optional("huggingface_hub", "a model of the hub")

    if not HUB_ID.fullmatch(repo_id):
        raise ValueError(f"`repo_id` must be owner/name, got {repo_id!r}")
    card = model_card(checkpoint.reranker, repo_id, license_name, measured=[read_measured(run) for run in runs])
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        if (artifact := checkpoint.manifest.artifact) is not None:
            source = checkpoint.path.parent
            check_manifest(source, checkpoint.manifest)
            copy_file(file_of(source, MANIFEST), folder / MANIFEST)
            for name in artifact.sha256:
                check_file(source, checkpoint.manifest, name)
                copy_file(file_of(source, name), folder / name)
        else:
            save_weights(folder, checkpoint.model)
            write_manifest(folder, checkpoint.manifest.content)
        write_text(folder / CARD, card)
        api = huggingface_hub.HfApi(token=token)
        url = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="graphrerank model")
    return str(url)


@dataclass(frozen=True)
class Measured:
    """What ``evaluate.py`` measured on one data set."""

    name: str  # of the data set
    split: str
    num_queries: int
    ceiling: float  # share of relevant passages among the candidates, in [0, 1]
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
        measured: Measures of each run of ``evaluate.py``: a table per data set, with all systems.
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
    metrics = manifest.metrics
    if not metrics:
        return "None were kept with the checkpoint."
    names = sorted({name for row in metrics.values() for name in row})
    rows = [
        [split, *(f"{row[name]:.4f}" if name in row else "" for name in names)]
        for split, row in sorted(metrics.items())
    ]
    return _table(["data set/split", *names], rows)


def _measured(dataset: Measured) -> Iterator[str]:
    """Write a data set's table: a row per system, measures in percent."""
    names = [name for name, mean in next(iter(dataset.systems.values())).items() if isinstance(mean, float)]
    names = [name for name in names if "@" in name and "/" not in name]
    yield f"### {dataset.name}"
    yield (
        f"{dataset.num_queries:,} queries of {dataset.split}, by `graphrerank evaluate`; percent. The candidates hold "
        f"{100 * dataset.ceiling:.1f}% of the relevant passages."
    )
    rows = [
        [system, *(f"{100 * means[name]:.1f}" if isinstance(means.get(name), float) else "" for name in names)]
        for system, means in dataset.systems.items()
    ]
    yield _table(["system", *names], rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    aligned = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, aligned, *rows))


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
        "formats do: load them only if you trust their author."
    )
