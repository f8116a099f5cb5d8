from pathlib import Path

import pytest
import torch

from graphrerank.caching import short_hash
from graphrerank_papers.ea_graphrag.syntax import features as syntax_features
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, SyntaxFeatures
from graphrerank_papers.ea_graphrag.syntax.units import Units, approximate_units

QUESTION = "Did Mary Shelley write a long novel about science in 1818?"
ODD = {
    "empty": "",
    "blank": " \n\t ",
    "one word": "Why",
    "punctuation": "?!...",
    "other language": "Où est la bibliothèque de l'université ?",
    "other script": "東京はどこですか",
    "2,000 tokens": "the dog that sees the cat and " * 286,
    "lone surrogate": "a \ud800 b",
    "emoji": "who 😀 is 👩‍👩‍👧 there?",
    "null": "a\x00b",
}


@pytest.fixture(scope="module")
def dependency() -> SyntaxFeatures:
    pytest.importorskip("spacy")
    return SyntaxFeatures()


def test_the_features_are_those_of_trained_adapters() -> None:
    assert len(FEATURES) == len(set(FEATURES)) == 130
    assert FEATURES[:9] == Units._fields
    assert short_hash(repr(FEATURES)) == "b03d8e00c122a291c5c2b0ef9bb6ad61"


BY_HAND: dict[str, dict[str, float]] = {
    QUESTION: {
        **{"W": 11, "S": 1, "C": 1, "T": 1, "DC": 0, "CN": 1, "MLS": 11, "CN/T": 1, "DC/C": 0},
        **{"num_subjects": 1, "num_objects": 3, "num_prepositions": 2, "num_auxiliaries": 1, "num_determiners": 1},
        **{"max_dependency_distance": 6, "mean_dependency_distance": 2, "num_long_dependencies": 1},
        **{"num_entities": 2, "num_persons": 1, "num_dates": 1, "num_entity_kinds": 2, "entity_density": 3 / 12},
        **{"num_agents": 1, "num_patients": 1, "num_temporal": 1, "num_locative": 0, "num_role_types": 3},
        **{"is_question": 1, "asks_yes_no": 1, "asks_who": 0, "num_question_words": 0},
        **{"type_token_ratio": 1, "root_type_token_ratio": 11**0.5, "mtld": 11, "num_numbers": 1},
        **{"num_content_words": 7, "num_function_words": 4, "content_function_ratio": 7 / 4},
        **{"max_depth": 3, "max_width": 5, "leaf_ratio": 7 / 5, "mean_branching": 11 / 5, "max_branching": 5},
        **{"num_passives": 0, "num_negations": 0, "tokens_per_clause": 12, "entities_per_token": 2 / 12},
        **{"depth_times_clauses": 3, "depth_times_entities": 6, "modifiers_per_noun": 1 / 4},
    },
    "Tom saw a big dog": {  # saw(Tom, dog(a, big))
        **{"max_depth": 2, "mean_depth": 6 / 5, "max_width": 2, "num_leaves": 3, "leaf_ratio": 3 / 2},
        **{"mean_branching": 2, "max_branching": 2, "depth_width_ratio": 1, "root_position": 1 / 4},
        **{"max_dependency_distance": 3, "mean_dependency_distance": 7 / 4, "share_head_final": 3 / 4},
        **{"mean_imbalance": (2 / 4 + 1) / 2, "root_imbalance": 2 / 4},
        "std_dependency_distance": ((0.75**2 * 2 + 0.25**2 + 1.25**2) / 4) ** 0.5,
    },
    "Who wrote Hamlet?": {"asks_who": 1},
    "whose dog is it": {"asks_who": 1},
    "How many moons does Mars have?": {"asks_how_many": 1},
    "How does it work?": {"asks_how_many": 0},
    "Are both films from France?": {"asks_yes_no": 1},
    "did Poe write Hamlet": {"asks_yes_no": 1},
    "The man who wrote Hamlet died.": {"is_question": 0, "asks_who": 0, "num_relative_clauses": 1},
    "Aspirin does not cure cancer.": {"num_negations": 1},
    "The town was founded by monks and burned by them.": {"num_passives": 1},
    "He is taller than the oldest man.": {"num_comparatives": 1, "num_superlatives": 1},
    "We left because it rained.": {"num_subordinators": 1},
    "She must have seen it.": {"num_modals": 1},
    "Paris, London, and Rome": {"num_coordinators": 1},
    "He gave her a book.": {"num_recipients": 1},
}


@pytest.mark.parametrize("text", BY_HAND)
def test_against_counts_by_hand(dependency: SyntaxFeatures, text: str) -> None:
    found = dict(zip(FEATURES, dependency.extract([text])[0].tolist(), strict=True))
    assert {name: found[name] for name in BY_HAND[text]} == pytest.approx(BY_HAND[text])
    assert all(found[name] == right for name, right in BY_HAND[text].items() if isinstance(right, int))


@pytest.mark.parametrize("kind", ODD)
def test_odd_texts_have_finite_features(dependency: SyntaxFeatures, kind: str) -> None:
    found = dependency.extract([ODD[kind]])
    assert found.shape == (1, len(FEATURES))
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert (found == 0).all() == (kind in {"empty", "blank"})


def test_a_batch_equals_singles(dependency: SyntaxFeatures) -> None:
    texts = [QUESTION, "", "Who wrote Hamlet?", "Paris", "We left because it rained.", QUESTION]
    together = dependency.extract(texts)
    assert torch.equal(together, torch.cat([dependency.extract([text]) for text in texts]))
    spaced = "  " + QUESTION.replace(" ", " \n\t ") + "\n"
    assert torch.equal(together[:1], dependency.extract([spaced]))


def test_nothing_is_parsed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dependency: SyntaxFeatures) -> None:
    texts, parsed = [QUESTION, "bb", "", "Paris", "Paris"], []
    count = lambda document: parsed.append(document.text) or approximate_units(document)  # noqa: E731
    monkeypatch.setattr(syntax_features, "approximate_units", count)
    found = SyntaxFeatures(tmp_path).extract(texts)
    assert torch.equal(SyntaxFeatures(tmp_path).extract(texts[::-1]), found.flip(0))
    assert sorted(parsed) == sorted(set(texts))
    assert torch.equal(found, dependency.extract(texts))
    before = dependency.fingerprint
    monkeypatch.setattr(syntax_features, "VERSION", 99)
    assert SyntaxFeatures().fingerprint != before
