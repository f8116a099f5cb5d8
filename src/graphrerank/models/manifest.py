"""Manifests: what a checkpoint's model is and what it was trained on, checked once when it is read.

A manifest may be a stranger's: it holds plain JSON within bounds (:mod:`graphrerank.strangers`), and names a model that
is registered here (:mod:`graphrerank.models.registry`), never a class to import.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphrerank.files import write_text
from graphrerank.graphs import ModelInputs
from graphrerank.graphs.calibration import Calibration
from graphrerank.graphs.list_confidence import ListConfidence
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.entries import (
    ArtifactEntry,
    DataEntry,
    EncoderEntry,
    FineTunedEntry,
    ModelEntry,
    PairEncoderEntry,
    RetrieverEntry,
    StartEntry,
    SyntaxEntry,
    ThresholdsEntry,
)
from graphrerank.models.parse_entries import parse_entries
from graphrerank.models.registry import find_model, read_inputs
from graphrerank.strangers import MIN_RESTART_PROB, check_json, check_name, file_of, read_json
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What any model's manifest holds; :func:`parse_manifest` makes one of the two kinds.

    Attributes:
        name: The system's name.
        model: Which model it is.
        features: Names of what the model reads, in order.
        config: The training's configuration, without folders of a machine.
        fine_tuned: The cross-encoder whose last layers were trained; None where none were.
        artifact: What an export adds; None before.
        content: All of it, as JSON.
        source: Where it was read, for messages.
    """

    name: str
    model: ModelEntry
    features: tuple[str, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    fine_tuned: FineTunedEntry | None = None
    artifact: ArtifactEntry | None = None
    content: Mapping[str, Any] = field(repr=False)
    source: str = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(name=self.name)  # of its row, whose run file is named by it

    @property
    def inputs(self) -> ModelInputs:
        """What the model reads.

        Raises:
            ValueError: If its arguments do not tell.
        """
        try:
            return read_inputs(find_model(self.model.name), self.model.arguments)
        except TypeError as error:
            raise ValueError(f"the manifest's arguments do not fit {self.model.name}: {error}") from error

    @property
    def seed(self) -> int | None:
        """The training's seed; None where it is not told."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    def with_entries(self, **entries: Any) -> "Manifest":
        """Return the manifest with further entries, or others in their place.

        Raises:
            ValueError: As :func:`parse_manifest`.
        """
        return parse_manifest({**self.content, **entries}, self.source)

    def without(self, *keys: str) -> "Manifest":
        """Return the manifest without some entries.

        Raises:
            ValueError: As :func:`parse_manifest`.
        """
        return parse_manifest({key: entry for key, entry in self.content.items() if key not in keys}, self.source)


@dataclass(frozen=True, kw_only=True)
class RerankerManifest(Manifest):
    """The manifest of a model that scores candidates.

    Attributes:
        retriever: Whose candidates it was trained on.
        data: The data set that it was trained on.
        operators: Restart probabilities of the frozen operators beside it, ``gcs`` and ``ppr``, in [0.001, 1].
        mix: Further data sets that it was trained on, by name.
        start: The checkpoint whose weights its training began from; None where it began anew.
        encoder: Of the texts; None where nothing was encoded.
        pair_encoder: Whose vectors or states of pairs the model reads; None where it reads none.
        calibration: Turns scores into probabilities; None where there is none.
        list_confidence: Turns a list's probabilities into those of its top being complete; None where there is none.
        metrics: Measures by ``data set/split``.
    """

    retriever: RetrieverEntry
    data: DataEntry
    operators: Mapping[str, float]
    mix: Mapping[str, DataEntry] = field(default_factory=dict)
    start: StartEntry | None = None
    encoder: EncoderEntry | None = None
    pair_encoder: PairEncoderEntry | None = None
    calibration: Calibration | None = None
    list_confidence: ListConfidence | None = None
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        probs = dict(self.operators)
        if probs.keys() != {"gcs", "ppr"} or not all(MIN_RESTART_PROB <= prob <= 1 for prob in probs.values()):
            raise ValueError(f"the manifest's `operators` must be gcs and ppr in [{MIN_RESTART_PROB}, 1], got {probs}")
        inputs = self.inputs
        for name, is_read in (("encoder", inputs.reads_vectors), ("pair_encoder", inputs.reads_pairs)):
            if is_read and getattr(self, name) is None:
                raise ValueError(f"the manifest needs an entry `{name}` for a model that reads it, found none")
        if self.list_confidence is not None and self.calibration is None:
            raise ValueError("the manifest needs an entry `calibration` for its `list_confidence`, found none")

    @property
    def trained_on(self) -> Mapping[str, DataEntry]:
        """All data sets that it was trained on, by name, first those of the checkpoint that it started from.

        Each has its file of ``conf/data`` among its arguments, as ``data``.
        """
        own = {str(self.data.choice): self.data, **self.mix}
        named = {name: replace(entry, arguments={"data": name, **entry.arguments}) for name, entry in own.items()}
        if self.start is None:
            return named
        return {f"{self.start.name}/{name}": entry for name, entry in self.start.trained_on.items()} | named

    @property
    def reads_cross_encoder(self) -> bool:
        """Whether the model reads a cross-encoder's scores of the first candidates, where there are some."""
        return not set(CROSS_ENCODER_FEATURES).isdisjoint(self.retriever.feature_names)

    @property
    def embedding_dim(self) -> int:
        """Width of the query and node vectors that the model reads; 0 where it reads none."""
        return self.encoder.dim if self.encoder is not None and self.inputs.reads_vectors else 0

    @property
    def val_split(self) -> str:
        """The validation split of the training.

        Raises:
            ValueError: If the manifest does not tell.
        """
        split = (self.config.get("batches") or {}).get("val_split")
        if not isinstance(split, str):
            raise ValueError(f"{self.source}: the manifest needs an entry `config.batches.val_split`, found {split!r}")
        return split


@dataclass(frozen=True, kw_only=True)
class AdapterManifest(Manifest):
    """The manifest of a complexity adapter, which scores queries by their syntax, and no candidates.

    Its entry ``calibration`` tells of the temperature that the weights hold.

    Attributes:
        syntax: What counted the features.
        thresholds: Chosen with fusion.
        without_fusion: Chosen without; None where it is not told.
        paths: Choice and settings of each path that it was trained to choose between, by the path's name.
        questions: Keys of the questions that it was trained or validated on, by data set.
    """

    syntax: SyntaxEntry
    thresholds: ThresholdsEntry
    without_fusion: ThresholdsEntry | None = None
    paths: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    questions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def num_features(self) -> int:
        """Number of raw features of a query."""
        return len(self.syntax.feature_names)


def parse_manifest(content: object, source: str | Path) -> Manifest:
    """Check a manifest.

    Args:
        content: What was read; entries that nobody reads are kept.
        source: Where, for messages.

    Returns:
        A :class:`RerankerManifest` or an :class:`AdapterManifest`.

    Raises:
        ValueError: If it is no object or names no registered model, or an entry is missing, of another type or out of
            range; names ``source`` and the entry.
    """
    check_json(content, str(source))
    if not isinstance(content, Mapping):
        raise ValueError(f"{source}: needed a JSON object, got {type(content).__name__}")
    entry = content.get("model")
    try:
        model_class = find_model(entry.get("name") if isinstance(entry, Mapping) else None)
    except ValueError as error:
        raise ValueError(f"{source}: the manifest's model {error}") from error
    kind: type[Manifest] = AdapterManifest if model_class is ComplexityAdapter else RerankerManifest
    try:
        return parse_entries(kind, {**content, "content": content, "source": str(source)})
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint: in its folder, or beside a ``.ckpt`` or one folder up.

    Raises:
        ValueError: If there is none, it is a link or not valid JSON, or as :func:`parse_manifest`.
    """
    file = file_of(manifest_folder(path), MANIFEST)
    return parse_manifest(read_json(file), file)


def manifest_folder(path: Path) -> Path:
    """Return the folder of a checkpoint's manifest: its own, or that of a ``.ckpt`` or one folder up.

    Raises:
        ValueError: If there is no manifest.
    """
    folders = [path] if path.is_dir() else [path.parent, path.parent.parent]
    for folder in folders:
        if (folder / MANIFEST).is_file():
            return folder
    raise ValueError(f"{path}: needed {MANIFEST} in {' or '.join(str(f) for f in folders)}, found none")


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write ``manifest.json``, atomically."""
    write_text(folder / MANIFEST, json.dumps(content, indent=2, sort_keys=True) + "\n")
