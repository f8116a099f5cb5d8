"""Features of dependency trees: distances, relations, shape."""

import math

from graphrerank_papers.ea_graphrag.syntax.parsed_text import ParsedText

LONG = 5  # tokens; longer dependencies are long-range
VERY_LONG = 10

RELATIONS = {  # feature: ClearNLP's labels
    "num_subjects": ("nsubj", "nsubjpass", "csubj", "csubjpass", "expl"),
    "num_objects": ("dobj", "pobj", "dative", "iobj", "oprd"),
    "num_modifiers": ("amod", "advmod", "nummod", "npadvmod", "nmod", "quantmod"),
    "num_adjective_modifiers": ("amod",),
    "num_adverb_modifiers": ("advmod", "npadvmod"),
    "num_prepositions": ("prep", "agent"),
    "num_conjuncts": ("conj",),
    "num_subordinate_clauses": ("ccomp", "advcl", "relcl", "csubj", "csubjpass", "acl", "pcomp"),
    "num_relative_clauses": ("relcl",),
    "num_adverbial_clauses": ("advcl",),
    "num_complement_clauses": ("ccomp",),
    "num_open_complements": ("xcomp",),
    "num_noun_clauses": ("acl",),
    "num_compounds": ("compound",),
    "num_possessives": ("poss",),
    "num_appositions": ("appos",),
    "num_auxiliaries": ("aux", "auxpass"),
    "num_determiners": ("det", "predet"),
}

DEPENDENCY = {
    "max_dependency_distance": "Largest distance of a word from its head, in tokens.",
    "mean_dependency_distance": "Mean distance of words from their heads.",
    "std_dependency_distance": "Standard deviation of these distances.",
    "num_long_dependencies": f"Words more than {LONG} tokens from their head.",
    "num_very_long_dependencies": f"Words more than {VERY_LONG} tokens from their head.",
    "share_long_dependencies": f"Share of words more than {LONG} tokens from their head.",
    "share_head_final": "Share of words that precede their head.",
    "root_position": "Position of the first root among the tokens, from 0 to 1.",
    "num_relation_types": "Different dependency labels.",
    **{name: f"Words with the dependency label {', '.join(labels)}." for name, labels in RELATIONS.items()},
    "mean_imbalance": "Mean over inner nodes of |tokens below on the left - on the right| / tokens below.",
    "root_imbalance": "The same at the first root only.",
}

TREE = {
    "max_depth": "Largest number of steps from a token up to its root.",
    "mean_depth": "Mean steps from tokens up to their roots.",
    "max_width": "Largest number of tokens on one level of a sentence's tree.",
    "num_leaves": "Tokens without dependents.",
    "leaf_ratio": "Leaves per inner node.",
    "mean_branching": "Mean dependents of inner nodes.",
    "max_branching": "Largest number of dependents of one token.",
    "depth_width_ratio": "Largest depth divided by largest width.",
}


def dependency_features(text: ParsedText) -> dict[str, float]:
    """Return ``DEPENDENCY``; all 0 for an empty text."""
    steps = [token - head for token, head in enumerate(text.heads) if head != token and text.is_word[token]]
    distances = [abs(step) for step in steps]
    mean = _mean(distances)
    imbalances = [_imbalance(text, token) for token, children in enumerate(text.num_children) if children]
    root = next((token for token, head in enumerate(text.heads) if token == head), 0)
    num_long = sum(distance > LONG for distance in distances)
    return {
        "max_dependency_distance": max(distances, default=0),
        "mean_dependency_distance": mean,
        "std_dependency_distance": math.sqrt(_mean([(distance - mean) ** 2 for distance in distances])),
        "num_long_dependencies": num_long,
        "num_very_long_dependencies": sum(distance > VERY_LONG for distance in distances),
        "share_long_dependencies": num_long / max(1, len(distances)),
        "share_head_final": sum(step < 0 for step in steps) / max(1, len(steps)),
        "root_position": root / max(1, len(text) - 1),
        "num_relation_types": len(text.counts),
        **{name: text.count(*labels) for name, labels in RELATIONS.items()},
        "mean_imbalance": _mean(imbalances),
        "root_imbalance": _imbalance(text, root) if len(text) else 0.0,
    }


def tree_features(text: ParsedText) -> dict[str, float]:
    """Return ``TREE``; all 0 for an empty text."""
    inner = [children for children in text.num_children if children]
    num_leaves = len(text) - len(inner)
    max_depth, max_width = max(text.depth, default=0), max(text.level_widths, default=0)
    return {
        "max_depth": max_depth,
        "mean_depth": _mean(text.depth),
        "max_width": max_width,
        "num_leaves": num_leaves,
        "leaf_ratio": num_leaves / max(1, len(inner)),
        "mean_branching": _mean(inner),
        "max_branching": max(inner, default=0),
        "depth_width_ratio": max_depth / max(1, max_width),
    }


def _imbalance(text: ParsedText, token: int) -> float:
    below = text.left[token] + text.right[token]
    return abs(text.left[token] - text.right[token]) / max(1, below)


def _mean(numbers: list[int] | list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0
