"""Features that combine two others."""

from collections.abc import Mapping

from graphrerank_papers.ea_graphrag.syntax.parsed_text import ParsedText

INTERACTIONS = {
    "tokens_per_clause": "Tokens per clause; per text if there is no clause.",
    "entities_per_token": "Entities per token.",
    "entities_per_clause": "Entities per clause; per text if there is no clause.",
    "depth_per_token": "Largest depth per token.",
    "connectors_per_clause": "Connectors per clause; per text if there is no clause.",
    "modifiers_per_noun": "Modifiers per noun and name.",
    "prepositions_per_token": "Prepositions per token.",
    "depth_times_clauses": "Largest depth times clauses.",
    "depth_times_entities": "Largest depth times entities.",
    "distance_times_dependent_clauses": "Mean dependency distance times dependent clauses.",
    "entities_times_dependent_clauses": "Entities times dependent clauses.",
    "nominals_times_entities": "Complex nominals times entities.",
}


def interaction_features(text: ParsedText, features: Mapping[str, float]) -> dict[str, float]:
    """Return ``INTERACTIONS``, computed from all other families' ``features``; all 0 for an empty text."""
    tokens, clauses = max(1, len(text)), max(1.0, features["C"])
    nouns = sum(kind in {"NOUN", "PROPN"} for kind in text.pos)
    return {
        "tokens_per_clause": len(text) / clauses,
        "entities_per_token": features["num_entities"] / tokens,
        "entities_per_clause": features["num_entities"] / clauses,
        "depth_per_token": features["max_depth"] / tokens,
        "connectors_per_clause": features["num_connectors"] / clauses,
        "modifiers_per_noun": features["num_modifiers"] / max(1, nouns),
        "prepositions_per_token": features["num_prepositions"] / tokens,
        "depth_times_clauses": features["max_depth"] * features["C"],
        "depth_times_entities": features["max_depth"] * features["num_entities"],
        "distance_times_dependent_clauses": features["mean_dependency_distance"] * features["DC"],
        "entities_times_dependent_clauses": features["num_entities"] * features["DC"],
        "nominals_times_entities": features["CN"] * features["num_entities"],
    }
