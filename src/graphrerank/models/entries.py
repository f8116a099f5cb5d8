"""What the entries of a manifest hold, and the bounds of their values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphrerank.strangers import MAX_SIZE, check_arguments, check_name


@dataclass(frozen=True)
class ModelEntry:
    """Which model it is.

    Attributes:
        name: One that :func:`~graphrerank.models.registry.find_model` knows.
        arguments: Its constructor's, which checks them; numbers have bounds here.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_arguments(self.arguments, "`arguments`")


@dataclass(frozen=True)
class GroupEntry:
    """A group of the configuration.

    Attributes:
        choice: A file of ``conf/<group>``; None where none was chosen by name.
        arguments: Settings of the group, plain values.
    """

    choice: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_arguments(self.arguments, "`arguments`")


@dataclass(frozen=True, kw_only=True)
class DataEntry(GroupEntry):
    """A data set that was trained on.

    Attributes:
        fingerprint: Changes whenever the data set does.
    """

    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class StartEntry:
    """The finished checkpoint whose weights a training began from.

    Attributes:
        name: What it was called.
        sha256: Hash of its weights.
        trained_on: The data sets of its training, by name; their arguments name the data set.
    """

    name: str
    sha256: str
    trained_on: Mapping[str, DataEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(name=self.name)


@dataclass(frozen=True, kw_only=True)
class PairEncoderEntry(GroupEntry):
    """The cross-encoder whose vectors of (query, passage) pairs were trained on.

    Attributes:
        fingerprint: Changes whenever the vectors would.
        dim: Width of a vector, positive.
    """

    fingerprint: str
    dim: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.dim <= MAX_SIZE:
            raise ValueError(f"`dim` must be positive, at most {MAX_SIZE}, got {self.dim}")


@dataclass(frozen=True, kw_only=True)
class EncoderEntry(PairEncoderEntry):
    """The encoder of the texts that were trained on.

    Attributes:
        name: What messages call it.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class RetrieverEntry(GroupEntry):
    """The retriever whose candidates were trained on.

    Attributes:
        feature_names: Names of the scores that the model reads, in order.
    """

    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class FineTunedEntry:
    """The cross-encoder whose last layers were trained.

    Attributes:
        folder: Where it lies, beside the manifest.
        fingerprint: Changes whenever its vectors would.
    """

    folder: str
    fingerprint: str

    def __post_init__(self) -> None:
        check_name(folder=self.folder)


@dataclass(frozen=True)
class ArtifactEntry:
    """What an export adds.

    Attributes:
        sha256: Hashes of the artifact's files, by their plain names.
        manifest_sha256: Hash of the manifest without this entry.
    """

    sha256: Mapping[str, str] = field(default_factory=dict)
    manifest_sha256: str | None = None

    def __post_init__(self) -> None:
        for name in self.sha256:
            check_name(sha256=name)


@dataclass(frozen=True)
class SyntaxEntry:
    """What counted the features of queries.

    Attributes:
        name: As in :class:`~graphrerank_papers.ea_graphrag.syntax.syntax_features.SyntaxFeatures`.
        fingerprint: Changes whenever the features would.
        feature_names: Names of all of them, in order.
    """

    name: str
    fingerprint: str
    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class ThresholdsEntry:
    """Where dense retrieval ends and graph retrieval begins.

    Attributes:
        low: Up to this score a query takes the dense path.
        high: From this score on it takes the graph path; above ``low``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high or math.isinf(self.low) or math.isinf(self.high):
            raise ValueError(f"`low` must be below `high`, both finite, got {self.low} and {self.high}")
