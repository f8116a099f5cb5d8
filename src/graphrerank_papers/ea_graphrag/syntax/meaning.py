"""Features of entities and of semantic roles, as far as dependency labels determine them."""

from graphrerank_papers.ea_graphrag.syntax.parsed_text import ParsedText

KINDS = {  # feature: OntoNotes' entity types
    "num_persons": ("PERSON",),
    "num_organizations": ("ORG",),
    "num_locations": ("GPE", "LOC", "FAC"),
    "num_dates": ("DATE", "TIME"),
    "num_groups": ("NORP", "LANGUAGE"),
    "num_works_and_events": ("WORK_OF_ART", "EVENT", "PRODUCT", "LAW"),
    "num_quantities": ("CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY"),
}

ENTITIES = {
    "num_entities": "Named entities of all kinds.",
    **{name: f"Named entities of the kind {', '.join(labels)}." for name, labels in KINDS.items()},
    "num_entity_kinds": "Different kinds of entity.",
    "entity_density": "Share of tokens within an entity.",
    "mean_entity_size": "Mean tokens of an entity.",
}

ROLES = {
    "num_agents": "Who acts: subjects of active verbs, agents of passive ones.",
    "num_patients": "Who or what is acted on: direct objects, subjects of passive verbs.",
    "num_recipients": "To whom: datives.",
    "num_attributes": "What something is said to be: predicate nouns and adjectives.",
    "num_temporal": "When: dates and times that modify, or that a preposition governs.",
    "num_locative": "Where: places that modify, or that a preposition governs.",
    "num_role_types": "How many of these six roles there are.",
}

ADJUNCT = frozenset({"pobj", "npadvmod", "nummod", "advmod"})


def entity_features(text: ParsedText) -> dict[str, float]:
    """Return ``ENTITIES``; all 0 for an empty text."""
    labels = [entity.label for entity in text.entities]
    size = sum(entity.size for entity in text.entities)
    return {
        "num_entities": len(labels),
        **{name: sum(label in kinds for label in labels) for name, kinds in KINDS.items()},
        "num_entity_kinds": len(set(labels)),
        "entity_density": size / max(1, len(text)),
        "mean_entity_size": size / max(1, len(labels)),
    }


def role_features(text: ParsedText) -> dict[str, float]:
    """Return ``ROLES``; all 0 for an empty text."""
    roles = {
        "num_agents": text.count("nsubj", "agent"),
        "num_patients": text.count("dobj", "nsubjpass"),
        "num_recipients": text.count("dative", "iobj"),
        "num_attributes": text.count("attr", "acomp", "oprd"),
        "num_temporal": _adjuncts(text, KINDS["num_dates"]),
        "num_locative": _adjuncts(text, KINDS["num_locations"]),
    }
    return {**roles, "num_role_types": sum(count > 0 for count in roles.values())}


def _adjuncts(text: ParsedText, kinds: tuple[str, ...]) -> float:
    return float(sum(e.label in kinds and text.relations[e.root] in ADJUNCT for e in text.entities))
