"""Manifests describe a checkpoint's model and its training. They are checked once, when they are read.

A manifest may be untrusted: it is plain JSON within bounds (:mod:`graphrerank.utils.safe_loading`), and names a
registered model (:mod:`graphrerank.models.registry`), never a class to import.

The manifest of an artifact names the SHA-256 of each file and of itself, against damage and mix-ups: no signature.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic import model_validator as check_model

from graphrerank._moved import moved_names
from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.core import ModelInputs
from graphrerank.core.adapters import model_interface
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.registry import find_model, read_inputs
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files, write_text
from graphrerank.utils.safe_loading import (
    MAX_SIZE,
    MIN_RESTART_PROB,
    check_arguments,
    check_depth,
    plain_name,
    read_json,
    untrusted_file,
)

__getattr__ = moved_names(__name__)

MANIFEST = "manifest.json"

Arguments = Annotated[dict[str, Any], AfterValidator(check_arguments)]
FileName = Annotated[str, AfterValidator(plain_name)]  # of a file or folder
NameTuple = Annotated[tuple[str, ...], Strict(False)]  # a JSON list
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
RestartProb = Annotated[float, Field(ge=MIN_RESTART_PROB, le=1)]


class Entry(BaseModel):
    """Part of a manifest: entries without a default must be there, unknown ones are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class ModelEntry(Entry):
    """The model's name for :func:`~graphrerank.models.registry.find_model`, and its constructor's arguments."""

    name: str
    arguments: Arguments = {}


class GroupEntry(Entry):
    """A group of the configuration: its file of ``conf/<group>``, if chosen by name, and plain settings."""

    choice: str | None = None
    arguments: Arguments = {}


class DataEntry(GroupEntry):
    """A data set of the training; its fingerprint changes whenever the data set does."""

    fingerprint: str


class StartEntry(Entry):
    """The finished checkpoint whose weights a training began from, with the hash of its weights and its data sets."""

    name: FileName
    sha256: str
    trained_on: dict[str, DataEntry] = {}  # by name; their arguments name the data set


class EncoderEntry(GroupEntry):
    """The encoder of the training's texts, or the cross-encoder of its (query, passage) pairs."""

    fingerprint: str  # changes whenever the vectors would
    dim: Size  # width of a vector
    name: str = ""  # for messages


class RetrieverEntry(GroupEntry):
    """The retriever of the training's candidates, and the scores that the model reads, in order."""

    feature_names: NameTuple


class ArtifactEntry(Entry):
    """Hashes of an exported artifact's files, by name, and of its manifest without this entry."""

    sha256: dict[FileName, str] = {}
    manifest_sha256: str | None = None


class Manifest(Entry):
    """Entries of every model's manifest.

    A model class names a subclass as its ``manifest_class``; without one it is :class:`RerankerManifest`.
    """

    name: FileName  # of the system, and of its run file
    model: ModelEntry
    features: NameTuple  # that the model reads, in order
    primary: bool | None = None  # whether it is the model of a run that is used where one is needed; None if unsaid
    config: dict[str, Any] = {}  # the training's configuration, without folders of a machine
    artifact: ArtifactEntry | None = None  # added by an export
    content: dict[str, Any] = Field(repr=False)  # the whole manifest as JSON
    source: str = Field(repr=False)  # its file, for messages

    @property
    def inputs(self) -> ModelInputs:
        """The model's inputs; a ValueError if the arguments do not fit the model."""
        try:
            return read_inputs(find_model(self.model.name), self.model.arguments)
        except TypeError as error:
            raise UserError(f"the manifest's arguments do not fit {self.model.name}: {error}") from error

    @property
    def input_shapes(self) -> Mapping[str, str]:
        """Shapes of the model's inputs by name, as ``"[n, 130]"``; letters are dynamic sizes."""
        raise NotImplementedError(f"{type(self).__name__} must define `input_shapes`")

    @property
    def output_shapes(self) -> Mapping[str, str]:
        """Shapes of an exported model's outputs by name, in order."""
        return {"scores": "[n]"}

    def with_entries(self, **entries: Any) -> "Manifest":
        """Return the manifest with new or replaced entries, checked."""
        return parse_manifest({**self.content, **entries}, self.source)

    def without(self, *keys: str) -> "Manifest":
        """Return the manifest without some entries, checked."""
        return parse_manifest({key: entry for key, entry in self.content.items() if key not in keys}, self.source)


class RerankerManifest(Manifest):
    """The manifest of a model that scores candidates."""

    retriever: RetrieverEntry
    data: DataEntry
    operators: dict[str, RestartProb]  # restart probabilities of the frozen operators `gcs` and `ppr`
    mix: dict[str, DataEntry] = {}  # further data sets of the training, by name
    start: StartEntry | None = None  # None for new weights
    encoder: EncoderEntry | None = None  # None if nothing was encoded
    pair_encoder: EncoderEntry | None = None  # None if the model reads no vectors of pairs
    calibration: Calibration | None = None
    list_confidence: ListConfidence | None = None
    metrics: dict[str, dict[str, float]] = {}  # by `data set/split`

    @check_model(mode="after")
    def _check(self) -> "RerankerManifest":
        if self.operators.keys() != {"gcs", "ppr"}:
            raise UserError(f"the manifest's `operators` must be gcs and ppr, got {self.operators}")
        inputs = self.inputs
        for name, is_read in (("encoder", inputs.reads_vectors), ("pair_encoder", inputs.reads_pairs)):
            if is_read and getattr(self, name) is None:
                raise UserError(f"the manifest needs an entry `{name}` for a model that reads it, found none")
        if self.list_confidence is not None and self.calibration is None:
            raise UserError("the manifest needs an entry `calibration` for its `list_confidence`, found none")
        return self

    @property
    def trained_on(self) -> Mapping[str, DataEntry]:
        """All data sets of the training by name, first those of the checkpoint that it started from.

        The arguments of each name its file of ``conf/data``, as ``data``.
        """
        before = {} if self.start is None else {f"{self.start.name}/{n}": e for n, e in self.start.trained_on.items()}
        return {**before, **self.last_trained_on}

    @property
    def last_trained_on(self) -> Mapping[str, DataEntry]:
        """The data sets of :attr:`trained_on` without those of the checkpoint that it started from."""
        return {
            name: entry.model_copy(update={"arguments": {"data": name, **entry.arguments}})
            for name, entry in {str(self.data.choice): self.data, **self.mix}.items()
        }

    @property
    def reads_cross_encoder(self) -> bool:
        """Whether the model reads a cross-encoder's scores of the first candidates, if there are some."""
        return not set(CROSS_ENCODER_FEATURES).isdisjoint(self.retriever.feature_names)

    @property
    def embedding_dim(self) -> int:
        """Width of the query and node vectors that the model reads; 0 if it reads none."""
        return self.encoder.dim if self.encoder is not None and self.inputs.reads_vectors else 0

    @property
    def val_split(self) -> str:
        """The validation split of the training; a ValueError if the manifest does not name it."""
        split = (self.config.get("batches") or {}).get("val_split")
        if not isinstance(split, str):
            raise UserError(f"{self.source}: the manifest needs an entry `config.batches.val_split`, found {split!r}")
        return split

    @property
    def input_shapes(self) -> Mapping[str, str]:
        """Of ``N`` candidates of ``B`` queries with ``E`` edges."""
        dim, pair_dim = self.embedding_dim, self.pair_encoder and self.pair_encoder.dim
        return {
            "base_features": f"[N, {len(self.retriever.feature_names)}]",
            "query_vectors": f"[B, {dim}]",
            "node_vectors": f"[N, {dim}]",
            "pair_vectors": f"[N, {pair_dim}]",
            "edge_index": "[2, E]",
            "edge_weight": "[E]",
            "edge_type": "[E]",
            "ptr": "[B + 1]",
            "degree": "[N]",
        }

    @property
    def output_shapes(self) -> Mapping[str, str]:
        """Scores, and probabilities if calibrated, which TorchScript's ``calibration`` computes of the scores."""
        return dict.fromkeys(["scores"] if self.calibration is None else ["scores", "probabilities"], "[N]")


def parse_manifest(content: object, source: str | Path) -> Manifest:
    """Check a manifest, a JSON object of the file ``source``; unknown entries are kept."""
    check_depth(content, str(source))
    if not isinstance(content, Mapping):
        raise UserError(f"{source}: needed a JSON object, got {type(content).__name__}")
    entry = content.get("model")
    try:
        model_class = find_model(entry.get("name") if isinstance(entry, Mapping) else None)
    except ValueError as error:
        raise UserError(f"{source}: the manifest's model {error}") from error
    kind: type[Manifest] = model_interface(model_class).manifest_class or RerankerManifest
    try:
        return kind.model_validate({**content, "content": dict(content), "source": str(source)})
    except ValidationError as error:
        problems = (_described(details) for details in error.errors(include_url=False))
        raise UserError(f"{source}: {'; '.join(problems)}") from error


def _described(details: Any) -> str:
    """Describe an error of pydantic by the entry's dotted name."""
    key = ".".join(map(str, details["loc"]))
    if details["type"] == "missing":
        return f"the manifest needs an entry `{key}`, found none"
    if details["type"] == "value_error":
        return f"the manifest's `{key}`: {details['ctx']['error']}" if key else str(details["ctx"]["error"])
    return f"the manifest's `{key}`: {details['msg']}, got {str(details['input'])[:100]!r}"


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint: in its folder, or next to a ``.ckpt`` or one folder up."""
    file = untrusted_file(manifest_folder(path), MANIFEST)
    return parse_manifest(read_json(file), file)


def manifest_folder(path: Path) -> Path:
    """Return the folder of a checkpoint's manifest: its own, or that of a ``.ckpt`` or one folder up."""
    folders = [path] if path.is_dir() else [path.parent, path.parent.parent]
    if found := [folder for folder in folders if (folder / MANIFEST).is_file()]:
        return found[0]
    raise UserError(f"{path}: needed {MANIFEST} in {' or '.join(str(f) for f in folders)}, found none")


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write ``manifest.json``, atomically."""
    write_text(folder / MANIFEST, json.dumps(content, indent=2, sort_keys=True) + "\n")


def seal_manifest(manifest: Mapping[str, Any], folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return an artifact's manifest with the hashes of its files in ``folder``, and its own."""
    sealed: dict[str, Any] = json.loads(json.dumps(manifest))  # as it will be read
    sealed["artifact"]["sha256"] = {name: hash_files([folder / name]) for name in sorted(names)}
    sealed["artifact"]["manifest_sha256"] = _hash_manifest(sealed)
    return sealed


def _hash_manifest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest as sorted JSON, without its own hash."""
    entry = {key: value for key, value in manifest["artifact"].items() if key != "manifest_sha256"}
    content = json.dumps({**manifest, "artifact": entry}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def check_manifest(folder: Path, manifest: Manifest) -> None:
    """Refuse an artifact's manifest that has no hash, or was changed."""
    needed, found = _artifact(manifest).manifest_sha256, _hash_manifest(manifest.content)
    if found != needed:
        raise UserError(
            f"{folder}: the manifest was changed: needed SHA-256 {needed}, found {found}; export the artifact again"
        )


def check_artifact_file(folder: Path, manifest: Manifest, name: str) -> None:
    """Refuse a file of an artifact that the manifest does not name, or that is missing, a link or another one."""
    hashes = _artifact(manifest).sha256
    if name not in hashes:
        raise UserError(f"{manifest.source}: the manifest needs an entry `artifact.sha256.{name}`, found none")
    if (found := hash_files([untrusted_file(folder, name)])) != hashes[name]:
        raise UserError(f"{folder / name}: needed SHA-256 {hashes[name]}, found {found}; export the artifact again")


def _artifact(manifest: Manifest) -> ArtifactEntry:
    if manifest.artifact is None:
        raise UserError(f"{manifest.source}: the manifest needs an entry `artifact`, found none")
    return manifest.artifact
