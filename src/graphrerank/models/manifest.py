"""Manifests: descriptions of a checkpoint's model and of its training, which are validated when they are read.

A manifest may be untrusted. It is plain JSON of limited size (see :mod:`graphrerank.utils.safe_loading`) and contains
the name of a registered model (see :mod:`graphrerank.models.registry`), never a class to import.

The manifest of an artifact contains the SHA-256 hash of each file and of itself. The hashes detect damaged and
mismatched files. They are not a signature.
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

#: Name of the manifest file in a checkpoint folder.
MANIFEST = "manifest.json"

Arguments = Annotated[dict[str, Any], AfterValidator(check_arguments)]
FileName = Annotated[str, AfterValidator(plain_name)]  # must be usable as the name of a file or folder
NameTuple = Annotated[tuple[str, ...], Strict(False)]  # not strict, because JSON has lists only
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
RestartProb = Annotated[float, Field(ge=MIN_RESTART_PROB, le=1)]


class Entry(BaseModel):
    """Base of the parts of a manifest. Fields without a default are required, and unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class ModelEntry(Entry):
    """Model of a checkpoint.

    Attributes:
        name: Name of the model. See :func:`~graphrerank.models.registry.find_model`.
        arguments: Arguments of its constructor by name.
    """

    name: str
    arguments: Arguments = {}


class GroupEntry(Entry):
    """Choice in a group of the configuration.

    Attributes:
        choice: Name of the file in ``conf/<group>``, without suffix. None if no file was chosen by name.
        arguments: Plain settings of the group.
    """

    choice: str | None = None
    arguments: Arguments = {}


class DataEntry(GroupEntry):
    """Data set that a model was trained on.

    Attributes:
        fingerprint: Hash that changes whenever the data set changes.
    """

    fingerprint: str


class StartEntry(Entry):
    """Checkpoint from which a training run started.

    Attributes:
        name: Name of the checkpoint.
        sha256: SHA-256 hash of its weights.
        trained_on: Data sets of the earlier training by name. Their arguments identify the data set.
    """

    name: FileName
    sha256: str
    trained_on: dict[str, DataEntry] = {}


class EncoderEntry(GroupEntry):
    """Text encoder that a model was trained with, or the cross-encoder of its (query, passage) pairs.

    Attributes:
        fingerprint: Hash that changes whenever the vectors change.
        dim: Width of a vector.
        name: Name for messages.
    """

    fingerprint: str
    dim: Size
    name: str = ""


class RetrieverEntry(GroupEntry):
    """Retriever of the candidates that a model was trained on.

    Attributes:
        feature_names: Names of the retriever scores that the model uses, in order.
    """

    feature_names: NameTuple


class FineTunedEntry(Entry):
    """Cross-encoder whose last layers were trained, in a folder next to the manifest.

    Attributes:
        folder: Name of the folder.
        fingerprint: Hash that changes whenever the vectors change.
    """

    folder: FileName
    fingerprint: str


class ArtifactEntry(Entry):
    """Hashes of an exported artifact.

    Attributes:
        sha256: SHA-256 hashes of the files by name.
        manifest_sha256: SHA-256 hash of the manifest without this field.
    """

    sha256: dict[FileName, str] = {}
    manifest_sha256: str | None = None


class Manifest(Entry):
    """Description of a model and its training. A model class may use a subclass as its ``manifest_class``.

    The default for a model class is :class:`RerankerManifest`.

    Attributes:
        name: Name of the system in result tables and of its run file.
        model: Model and its arguments.
        features: Names of the features that the model uses, in order.
        primary: Whether this is the main model of a run with several models. None if the manifest does not say.
        config: Configuration of the training, without the folders of a machine.
        fine_tuned: Cross-encoder with the trained last layers. None if no layer of a cross-encoder was trained.
        artifact: Hashes of the files. Only set in exported artifacts.
        content: Whole manifest as JSON.
        source: Path of the file, for messages.
    """

    name: FileName
    model: ModelEntry
    features: NameTuple
    primary: bool | None = None
    config: dict[str, Any] = {}
    fine_tuned: FineTunedEntry | None = None
    artifact: ArtifactEntry | None = None
    content: dict[str, Any] = Field(repr=False)
    source: str = Field(repr=False)

    @property
    def inputs(self) -> ModelInputs:
        """Inputs of the model.

        Raises:
            UserError: If the arguments do not fit the model.
        """
        try:
            return read_inputs(find_model(self.model.name), self.model.arguments)
        except TypeError as error:
            raise UserError(f"the arguments in the manifest do not fit {self.model.name}: {error}") from error

    @property
    def input_shapes(self) -> Mapping[str, str]:
        """Shapes of the model's inputs by name, such as ``"[n, 130]"``. Letters are dynamic sizes."""
        raise NotImplementedError(f"{type(self).__name__} must define `input_shapes`")

    @property
    def output_shapes(self) -> Mapping[str, str]:
        """Shapes of the outputs of an exported model by name, in order."""
        return {"scores": "[n]"}

    def with_entries(self, **entries: Any) -> "Manifest":
        """Return a validated copy of the manifest with added or replaced entries.

        Args:
            entries: Entries by name.

        Raises:
            UserError: If an entry is invalid.
        """
        return parse_manifest({**self.content, **entries}, self.source)

    def without(self, *keys: str) -> "Manifest":
        """Return a validated copy of the manifest without the given entries.

        Args:
            keys: Names of the entries to remove.

        Raises:
            UserError: If a required entry is removed.
        """
        return parse_manifest({key: entry for key, entry in self.content.items() if key not in keys}, self.source)


class RerankerManifest(Manifest):
    """Manifest of a model that scores candidates.

    Attributes:
        retriever: Retriever of the candidates of the training.
        data: First data set of the training.
        operators: Restart probabilities of the frozen operators ``gcs`` and ``ppr``.
        mix: Further data sets of the training by name.
        start: Checkpoint from which the training started. None if it started from new weights.
        encoder: Text encoder. None if no texts were encoded.
        pair_encoder: Cross-encoder. None if the model does not use pair vectors.
        calibration: Calibration of scores to probabilities of relevance. None if the model is not calibrated.
        list_confidence: Calibration of the confidence in a list. None if the model has none.
        metrics: Results by ``data set/split`` and measure.
    """

    retriever: RetrieverEntry
    data: DataEntry
    operators: dict[str, RestartProb]
    mix: dict[str, DataEntry] = {}
    start: StartEntry | None = None
    encoder: EncoderEntry | None = None
    pair_encoder: EncoderEntry | None = None
    calibration: Calibration | None = None
    list_confidence: ListConfidence | None = None
    metrics: dict[str, dict[str, float]] = {}

    @check_model(mode="after")
    def _check(self) -> "RerankerManifest":
        if self.operators.keys() != {"gcs", "ppr"}:
            raise UserError(f"`operators` of the manifest must contain exactly gcs and ppr, got {self.operators}")
        inputs = self.inputs
        for name, is_read in (("encoder", inputs.reads_vectors), ("pair_encoder", inputs.reads_pairs)):
            if is_read and getattr(self, name) is None:
                raise UserError(f"the manifest needs an entry `{name}`, because the model uses it, found none")
        if self.list_confidence is not None and self.calibration is None:
            raise UserError("the manifest needs an entry `calibration` for its `list_confidence`, found none")
        return self

    @property
    def trained_on(self) -> Mapping[str, DataEntry]:
        """All data sets of the training by name, beginning with those of the initial checkpoint.

        The arguments of each data set contain its file in ``conf/data`` as ``data``.
        """
        before = {} if self.start is None else {f"{self.start.name}/{n}": e for n, e in self.start.trained_on.items()}
        return {**before, **self.last_trained_on}

    @property
    def last_trained_on(self) -> Mapping[str, DataEntry]:
        """Data sets of :attr:`trained_on` without those of the initial checkpoint."""
        return {
            name: entry.model_copy(update={"arguments": {"data": name, **entry.arguments}})
            for name, entry in {str(self.data.choice): self.data, **self.mix}.items()
        }

    @property
    def reads_cross_encoder(self) -> bool:
        """Whether the model uses scores of a cross-encoder for the top candidates, if they are available."""
        return not set(CROSS_ENCODER_FEATURES).isdisjoint(self.retriever.feature_names)

    @property
    def embedding_dim(self) -> int:
        """Width of the query and node vectors that the model uses, 0 if it uses none."""
        return self.encoder.dim if self.encoder is not None and self.inputs.reads_vectors else 0

    @property
    def val_split(self) -> str:
        """Name of the validation split of the training.

        Raises:
            UserError: If the manifest does not contain it.
        """
        split = (self.config.get("batches") or {}).get("val_split")
        if not isinstance(split, str):
            raise UserError(f"{self.source}: the manifest needs an entry `config.batches.val_split`, found {split!r}")
        return split

    @property
    def input_shapes(self) -> Mapping[str, str]:
        """Shapes of the model's inputs for ``B`` queries with ``N`` candidates and ``E`` edges in total."""
        dim, pair_dim = self.embedding_dim, self.pair_encoder and self.pair_encoder.dim
        return {
            "base_features": f"[N, {len(self.retriever.feature_names)}]",
            "query_vectors": f"[B, {dim}]",
            "node_vectors": f"[N, {dim}]",
            "pair_vectors": f"[N, {pair_dim}]",
            "token_states": f"[T, {pair_dim}]",
            "token_ptr": "[N + 1]",
            "edge_index": "[2, E]",
            "edge_weight": "[E]",
            "edge_type": "[E]",
            "ptr": "[B + 1]",
            "degree": "[N]",
        }

    @property
    def output_shapes(self) -> Mapping[str, str]:
        """Shapes of the scores and, for a calibrated model, of the probabilities.

        In a TorchScript artifact, the method ``calibration`` computes the probabilities from the scores.
        """
        return dict.fromkeys(["scores"] if self.calibration is None else ["scores", "probabilities"], "[N]")


def parse_manifest(content: object, source: str | Path) -> Manifest:
    """Validate a manifest.

    Args:
        content: Manifest as a JSON object. Unknown entries are preserved.
        source: Path of the file, for messages.

    Returns:
        Manifest of the class that the model requires.

    Raises:
        UserError: If the manifest is invalid. The message contains the name of the invalid entry.
    """
    check_depth(content, str(source))
    if not isinstance(content, Mapping):
        raise UserError(f"{source} must contain a JSON object, got {type(content).__name__}")
    entry = content.get("model")
    try:
        model_class = find_model(entry.get("name") if isinstance(entry, Mapping) else None)
    except ValueError as error:
        raise UserError(f"{source}: the manifest's `model.name` {error}") from error
    kind: type[Manifest] = model_interface(model_class).manifest_class or RerankerManifest
    try:
        return kind.model_validate({**content, "content": dict(content), "source": str(source)})
    except ValidationError as error:
        problems = (_described(details) for details in error.errors(include_url=False))
        raise UserError(f"{source}: {'; '.join(problems)}") from error


def _described(details: Any) -> str:
    """Describe a validation error of pydantic with the dotted name of the entry."""
    key = ".".join(map(str, details["loc"]))
    if details["type"] == "missing":
        return f"the manifest needs an entry `{key}`, found none"
    if details["type"] == "value_error":
        return f"the manifest's `{key}`: {details['ctx']['error']}" if key else str(details["ctx"]["error"])
    return f"the manifest's `{key}`: {details['msg']}, got {str(details['input'])[:100]!r}"


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Args:
        path: Checkpoint folder or ``.ckpt`` file. The manifest of a file is next to it or one folder up.

    Returns:
        Validated manifest.

    Raises:
        UserError: If there is no manifest, or if it is invalid.
    """
    file = untrusted_file(manifest_folder(path), MANIFEST)
    return parse_manifest(read_json(file), file)


def manifest_folder(path: Path) -> Path:
    """Return the folder that contains the manifest of a checkpoint.

    Args:
        path: Checkpoint folder or ``.ckpt`` file. The manifest of a file is next to it or one folder up.

    Raises:
        UserError: If there is no manifest.
    """
    folders = [path] if path.is_dir() else [path.parent, path.parent.parent]
    if matches := [folder for folder in folders if (folder / MANIFEST).is_file()]:
        return matches[0]
    raise UserError(f"{path} must have a {MANIFEST} in {' or '.join(str(f) for f in folders)}, found none")


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write ``manifest.json``. An existing file is replaced atomically.

    Args:
        folder: Folder of the checkpoint.
        content: Manifest as a JSON object.
    """
    write_text(folder / MANIFEST, json.dumps(content, indent=2, sort_keys=True) + "\n")


def seal_manifest(manifest: Mapping[str, Any], folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return the manifest of an artifact with the hashes of its files and of itself.

    Args:
        manifest: Manifest as a JSON object with an entry ``artifact``.
        folder: Folder of the artifact.
        names: Names of the files to hash.

    Returns:
        New manifest. The argument is not changed.
    """
    sealed: dict[str, Any] = json.loads(json.dumps(manifest))  # hash what a reader of the JSON file will see
    sealed["artifact"]["sha256"] = {name: hash_files([folder / name]) for name in sorted(names)}
    sealed["artifact"]["manifest_sha256"] = _hash_manifest(sealed)
    return sealed


def _hash_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of a manifest as sorted JSON, without the field ``manifest_sha256``."""
    entry = {key: value for key, value in manifest["artifact"].items() if key != "manifest_sha256"}
    content = json.dumps({**manifest, "artifact": entry}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def check_manifest(folder: Path, manifest: Manifest) -> None:
    """Check that the manifest of an artifact has not been changed.

    Args:
        folder: Folder of the artifact, for messages.
        manifest: Manifest of the artifact.

    Raises:
        UserError: If the manifest has no hash or a different one.
    """
    expected, actual = _artifact(manifest).manifest_sha256, _hash_manifest(manifest.content)
    if actual != expected:
        raise UserError(
            f"{folder}: the manifest has been changed. Its SHA-256 hash must be {expected}, got {actual}. Export the "
            "artifact again"
        )


def check_artifact_file(folder: Path, manifest: Manifest, name: str) -> None:
    """Check that a file of an artifact has the hash that its manifest contains.

    Args:
        folder: Folder of the artifact.
        manifest: Manifest of the artifact.
        name: Name of the file.

    Raises:
        UserError: If the file is missing, is a link, is not in the manifest, or has a different hash.
    """
    hashes = _artifact(manifest).sha256
    if name not in hashes:
        raise UserError(f"{manifest.source}: the manifest needs an entry `artifact.sha256.{name}`, found none")
    if (actual := hash_files([untrusted_file(folder, name)])) != hashes[name]:
        raise UserError(
            f"{folder / name}: the SHA-256 hash must be {hashes[name]}, got {actual}. Export the artifact again"
        )


def _artifact(manifest: Manifest) -> ArtifactEntry:
    if manifest.artifact is None:
        raise UserError(f"{manifest.source}: the manifest needs an entry `artifact`, found none")
    return manifest.artifact
