"""The feature vector of a text's syntax: names, families and order."""

from typing import Any, NamedTuple

from graphrerank_papers.ea_graphrag.syntax.interactions import INTERACTIONS, interaction_features
from graphrerank_papers.ea_graphrag.syntax.meaning import ENTITIES, ROLES, entity_features, role_features
from graphrerank_papers.ea_graphrag.syntax.parsed_text import ParsedText
from graphrerank_papers.ea_graphrag.syntax.structure import DEPENDENCY, TREE, dependency_features, tree_features
from graphrerank_papers.ea_graphrag.syntax.units import RATIO_NAMES, UNIT_NAMES, Units
from graphrerank_papers.ea_graphrag.syntax.wording import (
    LEXICAL,
    MARKERS,
    QUESTION,
    lexical_features,
    marker_features,
    question_features,
)


class Feature(NamedTuple):
    """One number computed from a text."""

    name: str  # unique name
    family: str
    description: str  # what it measures, in a sentence


FAMILIES = {
    "units": UNIT_NAMES,
    "ratios": RATIO_NAMES,
    "dependency": DEPENDENCY,
    "entities": ENTITIES,
    "roles": ROLES,
    "lexical": LEXICAL,
    "question": QUESTION,
    "markers": MARKERS,
    "tree": TREE,
    "interactions": INTERACTIONS,
}
FEATURES = tuple(
    Feature(name, family, description) for family, names in FAMILIES.items() for name, description in names.items()
)
VERSION = 1  # increment when a feature changes: cached features are then computed again


def feature_values(document: Any, units: Units) -> list[float]:
    """Compute one finite number for each of ``FEATURES``; all 0 for an empty text.

    Source: Dong et al., Use Graph When It Needs (EA-GraphRAG), section 3.2, which names the families and examples of
    each. ``document`` is spaCy's, with tags, dependencies and entities; ``units`` may come from any counter.
    """
    text = ParsedText(document)
    features: dict[str, float] = {
        **units._asdict(),
        **units.ratios(),
        **dependency_features(text),
        **entity_features(text),
        **role_features(text),
        **lexical_features(text),
        **question_features(text),
        **marker_features(text),
        **tree_features(text),
    }
    features.update(interaction_features(text, features))
    return [float(features[feature.name]) for feature in FEATURES]
