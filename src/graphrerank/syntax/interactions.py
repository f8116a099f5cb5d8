"""Features that join two of the others."""

from collections.abc import Mapping

from graphrerank.syntax.parsed_text import ParsedText

INTERACTIONS = {
    "tokens_per_clause": "Tokens per clause; per text where there is no clause.",
    "entities_per_token": "Entities per token.",
    "entities_per_clause": "Entities per clause; per text where there is no clause.",
    "depth_per_token": "Largest depth per token.",
    "connectors_per_clause": "Connectors per clause; per text where there is no clause.",
    "modifiers_per_noun": "Modifiers per noun and name.",
    "prepositions_per_token": "Prepositions per token.",
    "depth_times_clauses": "Largest depth times clauses.",
    "depth_times_entities": "Largest depth times entities.",
    "distance_times_dependent_clauses": "Mean dependency distance times dependent clauses.",
    "entities_times_dependent_clauses": "Entities times dependent clauses.",
    "nominals_times_entities": "Complex nominals times entities.",
}


def interaction_features(text: ParsedText, found: Mapping[str, float]) -> dict[str, float]:
    """Join features.

    Args:
        text: The text.
        found: The features of all other families, by name.

    Returns:
        ``INTERACTIONS``; all 0 for an empty text.
    """
    tokens, clauses = max(1, len(text)), max(1.0, found["C"])
    nouns = sum(kind in {"NOUN", "PROPN"} for kind in text.pos)
    return {
        "tokens_per_clause": len(text) / clauses,
        "entities_per_token": found["num_entities"] / tokens,
        "entities_per_clause": found["num_entities"] / clauses,
        "depth_per_token": found["max_depth"] / tokens,
        "connectors_per_clause": found["num_connectors"] / clauses,
        "modifiers_per_noun": found["num_modifiers"] / max(1, nouns),
        "prepositions_per_token": found["num_prepositions"] / tokens,
        "depth_times_clauses": found["max_depth"] * found["C"],
        "depth_times_entities": found["max_depth"] * found["num_entities"],
        "distance_times_dependent_clauses": found["mean_dependency_distance"] * found["DC"],
        "entities_times_dependent_clauses": found["num_entities"] * found["DC"],
        "nominals_times_entities": found["CN"] * found["num_entities"],
    }
