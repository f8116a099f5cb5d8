"""The manifest of a complexity adapter, which scores queries by their syntax, and no candidates."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field
from pydantic import model_validator as check_model

from graphrerank.models.manifest import Entry, Manifest, Names


class SyntaxEntry(Entry):
    """The extractor of the queries' features.

    Attributes:
        name: As in :class:`~graphrerank_papers.ea_graphrag.syntax.syntax_features.SyntaxFeatures`.
        fingerprint: Changes whenever the features would.
        feature_names: Names of all of them, in order.
    """

    name: str
    fingerprint: str
    feature_names: Names


class ThresholdsEntry(Entry):
    """Where dense retrieval ends and graph retrieval begins.

    Attributes:
        low: Up to this score a query takes the dense path.
        high: From this score on it takes the graph path; above ``low``.
    """

    low: float
    high: float

    @check_model(mode="after")
    def _check(self) -> "ThresholdsEntry":
        if not self.low < self.high or math.isinf(self.low) or math.isinf(self.high):
            raise ValueError(f"`low` must be below `high`, both finite, got {self.low} and {self.high}")
        return self


class AdapterManifest(Manifest):
    """The manifest of a complexity adapter. Its entry ``calibration`` describes the temperature in the weights.

    Attributes:
        syntax: The extractor of the features.
        thresholds: Chosen with fusion.
        without_fusion: Chosen without; None if unknown.
        paths: Choice and settings of each path that the adapter was trained to choose between, by the path's name.
        questions: Keys of the questions of its training and validation, by data set.
    """

    syntax: SyntaxEntry
    thresholds: ThresholdsEntry
    without_fusion: ThresholdsEntry | None = None
    paths: dict[str, dict[str, Any]] = Field(default_factory=dict)
    questions: dict[str, Names] = Field(default_factory=dict)

    @property
    def num_features(self) -> int:
        """Number of raw features of a query."""
        return len(self.syntax.feature_names)

    @property
    def input_shapes(self) -> Mapping[str, str]:
        """As :attr:`Manifest.input_shapes`: ``n`` queries."""
        return {"features": f"[n, {self.num_features}]"}
