import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.utils.caching import short_hash
from graphrerank_papers.ea_graphrag.syntax import features as syntax_features
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, StanzaParser, SyntaxFeatures
from graphrerank_papers.ea_graphrag.syntax.units import Units, approximate_units, count_units

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
    return SyntaxFeatures("dependency")


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


@pytest.mark.slow
def test_sources_differ_and_never_share_a_file(stanza_en: Path, dependency: SyntaxFeatures, tmp_path: Path) -> None:
    stanza = SyntaxFeatures("stanza", stanza_folder=stanza_en, cache=tmp_path)
    guess = SyntaxFeatures("dependency", cache=tmp_path)
    texts = ["The old cat slept in the house.", "Who saw the dog?", "x y z"]
    first, second = stanza.extract(texts), guess.extract(texts)
    assert (stanza.name, guess.name) == ("stanza", "dependency")
    assert stanza.fingerprint != guess.fingerprint
    assert sorted(file.name.split("-")[0] for file in tmp_path.iterdir()) == ["dependency", "stanza"]
    assert torch.equal(SyntaxFeatures("dependency", cache=tmp_path).extract(texts), second)
    assert torch.equal(SyntaxFeatures("stanza", stanza_folder=stanza_en, cache=tmp_path).extract(texts), first)
    same = [FEATURES.index(name) for name in ("num_entities", "max_depth", "mtld", "num_commas")]
    assert torch.equal(first[:, same], second[:, same])
    copy = shutil.copytree(stanza_en, tmp_path / "copy")
    assert StanzaParser(copy).fingerprint == StanzaParser(stanza_en).fingerprint
    with next(copy.rglob("*constituency*.pt")).open("ab") as file:
        file.write(b"!")
    assert StanzaParser(copy).fingerprint != StanzaParser(stanza_en).fingerprint


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
    found = SyntaxFeatures("dependency", cache=tmp_path).extract(texts)
    assert torch.equal(SyntaxFeatures("dependency", cache=tmp_path).extract(texts[::-1]), found.flip(0))
    assert sorted(parsed) == sorted(set(texts))
    assert torch.equal(found, dependency.extract(texts))
    before = dependency.fingerprint
    monkeypatch.setattr(syntax_features, "FEATURES_VERSION", 99)
    assert SyntaxFeatures("dependency").fingerprint != before


def test_units_by_hand_with_a_real_model_of_stanza(stanza_en: Path, nlp: Any) -> None:
    documents = [
        nlp("Which film did he make?"),
        nlp(""),
        nlp("He works, but she sleeps. The book which she wrote in 1990 won a prize."),
        nlp("If it rains, we know that the game will stop."),
        nlp("Compare the two plans."),
    ]
    parser = StanzaParser(stanza_en)
    parsed = parser.parse(documents)
    assert list(map(len, parsed)) == [1, 0, 2, 1, 1]
    counted = list(map(count_units, parsed))
    assert counted == [  # W, S, VP, C, T, DC, CT, CP, CN
        (5, 1, 1, 1, 1, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (15, 2, 4, 4, 3, 1, 1, 0, 1),
        (10, 1, 3, 3, 1, 2, 1, 0, 1),
        (4, 1, 1, 1, 1, 0, 0, 0, 0),
    ]
    assert list(map(count_units, parser.parse(documents[::-1]))) == counted[::-1]


def test_brackets_and_unknown_tags_are_tokens_like_others(stanza_en: Path, nlp: Any) -> None:
    document = nlp("The film (a comedy) costs 5 $ ... データ")
    (trees,) = StanzaParser(stanza_en).parse([document])
    written = {"(": "-LRB-", ")": "-RRB-"}
    words = [leaf.word for tree in trees for leaf in tree.leaves()]
    assert words == [written.get(token.text, token.text) for token in document]


def test_folders_and_models_that_do_not_fit_are_named(tmp_path: Path, nlp: Any) -> None:
    pytest.importorskip("stanza")
    loose, empty = tmp_path / "loose", tmp_path / "empty"
    loose.mkdir()
    with pytest.raises(ValueError, match=r"`folder` must contain en/ .* got .* with \[\]"):
        StanzaParser(loose)
    for name in ("my_constituency.pt", "vectors.pt"):
        (loose / name).write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"resources\.json \(.*vectors\.pt"):
        StanzaParser(loose)
    (loose / "resources.json").write_text(json.dumps({"en": {"lang_name": "English", "packages": {}}}))
    with pytest.raises(ValueError, match=str(loose)):  # a damaged model
        StanzaParser(loose).parse([nlp("One sentence.")])
    (empty / "en").mkdir(parents=True)  # as if Stanza's, but nothing was downloaded
    assert StanzaParser(empty).parse([]) == []  # loads no model
    with pytest.raises(ValueError, match=r"stanza\.download\('en'\) or choose syntax=dependency"):
        StanzaParser(empty).parse([nlp("One sentence.")])


def test_settings_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"`syntax` must be one of .*, got 'constituency'"):
        SyntaxFeatures("constituency")
    with pytest.raises(ValueError, match="only allowed with syntax=stanza"):
        SyntaxFeatures("dependency", stanza_folder="x")
    (tmp_path / "en").mkdir()
    monkeypatch.setitem(sys.modules, "stanza", None)
    with pytest.raises(ValueError, match=r"pip install 'graphrerank\[syntax\]'"):
        StanzaParser(tmp_path)


def test_stanza_runs_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stanza")
    asked: dict[str, object] = {}
    monkeypatch.setattr("stanza.Pipeline", lambda *_, **settings: asked.update(settings))
    _ = StanzaParser(device="cuda:1")._pipeline
    assert asked["device"] == "cuda:1"
    _ = SyntaxFeatures("stanza")._stanza._pipeline
    assert asked["device"] == "cpu"
