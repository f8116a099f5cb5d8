import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank_papers.ea_graphrag.syntax import syntax_features
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES
from graphrerank_papers.ea_graphrag.syntax.syntax_features import SyntaxFeatures
from graphrerank_papers.ea_graphrag.syntax.units import Units

NAMES = [feature.name for feature in FEATURES]
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


def row(features: SyntaxFeatures, text: str) -> dict[str, float]:
    return dict(zip(NAMES, features.extract([text])[0].tolist(), strict=True))


def test_the_features_are_named_once_and_described() -> None:
    assert len(NAMES) >= 85
    assert len(set(NAMES)) == len(NAMES)
    assert all(feature.description.endswith(".") for feature in FEATURES)
    assert [*dict.fromkeys(feature.family for feature in FEATURES)] == [
        *("units", "ratios", "dependency", "entities", "roles", "lexical", "question", "markers", "tree"),
        "interactions",
    ]
    assert tuple(NAMES[:9]) == Units._fields


def test_against_counts_by_hand(dependency: SyntaxFeatures) -> None:
    found = row(dependency, QUESTION)
    expected = {
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
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_tree_features_by_hand(dependency: SyntaxFeatures) -> None:
    found = row(dependency, "Tom saw a big dog")  # saw(Tom, dog(a, big))
    expected = {
        **{"max_depth": 2, "mean_depth": 6 / 5, "max_width": 2, "num_leaves": 3, "leaf_ratio": 3 / 2},
        **{"mean_branching": 2, "max_branching": 2, "depth_width_ratio": 1, "root_position": 1 / 4},
        **{"max_dependency_distance": 3, "mean_dependency_distance": 7 / 4, "share_head_final": 3 / 4},
        **{"mean_imbalance": (2 / 4 + 1) / 2, "root_imbalance": 2 / 4},
        "std_dependency_distance": ((0.75**2 * 2 + 0.25**2 + 1.25**2) / 4) ** 0.5,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("Who wrote Hamlet?", "asks_who", 1),
        ("whose dog is it", "asks_who", 1),
        ("How many moons does Mars have?", "asks_how_many", 1),
        ("How does it work?", "asks_how_many", 0),
        ("Are both films from France?", "asks_yes_no", 1),
        ("did Poe write Hamlet", "asks_yes_no", 1),
        ("The man who wrote Hamlet died.", "is_question", 0),
        ("The man who wrote Hamlet died.", "asks_who", 0),
        ("The man who wrote Hamlet died.", "num_relative_clauses", 1),
        ("Aspirin does not cure cancer.", "num_negations", 1),
        ("The town was founded by monks and burned by them.", "num_passives", 1),
        ("He is taller than the oldest man.", "num_comparatives", 1),
        ("He is taller than the oldest man.", "num_superlatives", 1),
        ("We left because it rained.", "num_subordinators", 1),
        ("She must have seen it.", "num_modals", 1),
        ("Paris, London, and Rome", "num_coordinators", 1),
        ("He gave her a book.", "num_recipients", 1),
    ],
)
def test_what_is_counted(dependency: SyntaxFeatures, text: str, name: str, count: float) -> None:
    assert row(dependency, text)[name] == count


@pytest.mark.parametrize("kind", ODD)
def test_odd_texts_have_finite_features(dependency: SyntaxFeatures, kind: str) -> None:
    found = dependency.extract([ODD[kind]])
    assert found.shape == (1, len(FEATURES))
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert (found == 0).all() == (kind in {"empty", "blank"})


@pytest.mark.slow
def test_odd_texts_with_a_real_model_of_stanza(stanza_en: Path) -> None:
    features = SyntaxFeatures("stanza", stanza_folder=stanza_en)
    found = features.extract(list(ODD.values()))
    assert found.isfinite().all()
    assert (found[0] == 0).all()
    assert row(features, QUESTION)["C"] == 1


@pytest.mark.slow
def test_sources_differ_and_never_share_a_file(tiny_stanza: Path, dependency: SyntaxFeatures, tmp_path: Path) -> None:
    stanza = SyntaxFeatures("stanza", stanza_folder=tiny_stanza, cache=tmp_path)
    guess = SyntaxFeatures("dependency", cache=tmp_path)
    texts = ["The old cat slept in the house.", "Who saw the dog?", "x y z"]
    first, second = stanza.extract(texts), guess.extract(texts)
    assert (stanza.name, guess.name) == ("stanza", "dependency")
    assert stanza.fingerprint != guess.fingerprint
    assert sorted(file.name.split("-")[0] for file in tmp_path.iterdir()) == ["dependency", "stanza"]
    assert torch.equal(SyntaxFeatures("dependency", cache=tmp_path).extract(texts), second)
    assert torch.equal(SyntaxFeatures("stanza", stanza_folder=tiny_stanza, cache=tmp_path).extract(texts), first)
    same = [place for place, feature in enumerate(FEATURES) if feature.family in {"entities", "tree", "lexical"}]
    assert torch.equal(first[:, same], second[:, same])


def test_a_batch_equals_singles(dependency: SyntaxFeatures) -> None:
    texts = [QUESTION, "", "Who wrote Hamlet?", "Paris", "We left because it rained.", QUESTION]
    assert torch.equal(dependency.extract(texts), torch.cat([dependency.extract([text]) for text in texts]))


def test_white_space_counts_for_nothing(dependency: SyntaxFeatures) -> None:
    spaced = "  " + QUESTION.replace(" ", " \n\t ") + "\n"
    assert torch.equal(dependency.extract([QUESTION]), dependency.extract([spaced]))


def test_no_texts(dependency: SyntaxFeatures) -> None:
    assert dependency.extract([]).shape == (0, len(FEATURES))


def test_nothing_is_parsed_twice(tmp_path: Path, dependency: SyntaxFeatures) -> None:
    texts = [QUESTION, "Paris", "", "Paris"]
    first = SyntaxFeatures("dependency", cache=tmp_path)
    found = first.extract(texts)
    assert torch.equal(found, dependency.extract(texts))
    assert first.num_counted == 3
    assert first.seconds > 0
    second = SyntaxFeatures("dependency", cache=tmp_path)
    assert torch.equal(second.extract(texts[::-1]), found.flip(0))
    assert (second.num_counted, second.seconds) == (0, 0.0)
    second.extract([*texts, "Rome"])
    assert second.num_counted == 1


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax_features, "SHARD_TEXTS", 2)
    texts = ["a", "bb", "ccc", "dddd", "eeeee"]
    stopped = SyntaxFeatures("dependency", cache=tmp_path)
    count, calls = stopped.counter.count, []

    def stop(documents: Any) -> Any:
        calls.append(documents)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return count(documents)

    monkeypatch.setattr(stopped.counter, "count", stop)
    with pytest.raises(KeyboardInterrupt):
        stopped.extract(texts)
    resumed = SyntaxFeatures("dependency", cache=tmp_path)
    found = resumed.extract(texts)
    assert resumed.num_counted == 1
    assert torch.equal(found, SyntaxFeatures("dependency").extract(texts))


def test_fingerprint_changes_with_features_and_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    before = SyntaxFeatures("dependency").fingerprint
    monkeypatch.setattr(syntax_features, "VERSION", 99)
    assert SyntaxFeatures("dependency").fingerprint != before


def test_damaged_files_are_named(tmp_path: Path) -> None:
    features = SyntaxFeatures("dependency", cache=tmp_path)
    features.extract(["Paris"])
    assert features.path is not None
    with sqlite3.connect(features.path) as file:
        file.execute("UPDATE features SET content = ?", (b"1234",))
    needed = rf"needed rows of {4 * len(FEATURES)} bytes, found one of 4"
    with pytest.raises(ValueError, match=rf"\.sqlite: damaged cache \({needed}\); delete this file"):
        SyntaxFeatures("dependency", cache=tmp_path).extract(["Paris"])
    features.path.write_bytes(b"no database at all, but some text that is long enough to be looked at")
    with pytest.raises(ValueError, match=r"\.sqlite: damaged cache"):
        SyntaxFeatures("dependency", cache=tmp_path).extract(["Paris"])


@pytest.mark.parametrize(
    ("syntax", "settings", "trouble"),
    [
        ("constituency", {}, "`syntax` must be one of .*, got 'constituency'"),
        ("dependency", {"stanza_folder": "x"}, "apply to syntax=stanza only"),
        ("dependency", {"download": True}, "apply to syntax=stanza only"),
        ("dependency", {"batch_size": 0}, "`batch_size` must be a positive integer, got 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(syntax: str, settings: dict[str, Any], trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        SyntaxFeatures(syntax, **settings)


def test_a_missing_pipeline_is_named() -> None:
    with pytest.raises(ValueError, match="must be an installed spaCy pipeline, got 'no_such_model'"):
        SyntaxFeatures("dependency", model="no_such_model").extract(["a"])


def test_importing_loads_no_parser() -> None:
    code = (
        "import sys, graphrerank_papers.ea_graphrag.syntax.syntax_features\n"
        "print([n for n in ('spacy', 'stanza', 'nltk') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
