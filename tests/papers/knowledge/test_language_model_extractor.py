import json
from typing import Any

import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank_papers.knowledge.language_model_extractor import LanguageModelKnowledgeExtractor, parse_knowledge

pytest.importorskip("httpx", reason="httpx is optional")

METZ = {"name": "Metz", "type": "city", "description": "A city."}
KING = {"name": "Lothair II", "type": "person", "description": "A king."}
DIED = {"head": "Lothair II", "relation": "died in", "tail": "Metz", "description": "He died in Metz."}
EXPECTED = Knowledge(
    (Entity("Metz", "city", "A city."), Entity("Lothair II", "person", "A king.")),
    (Relation("Lothair II", "died in", "Metz", "He died in Metz."),),
)


def answer(content: Any) -> tuple[int, dict[str, Any]]:
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    return 200, {"choices": [{"message": {"content": text}}]}


GOOD = answer({"entities": [METZ, KING], "relations": [DIED]})
EMPTY = answer({"entities": [], "relations": []})


def extractor(endpoint: Any, **settings: Any) -> LanguageModelKnowledgeExtractor:
    return LanguageModelKnowledgeExtractor(LanguageModel(endpoint[0], "m", pause=0.0), **settings)


def test_each_text_is_asked_for_once(endpoint: Any) -> None:
    endpoint[1].script = {"a": [GOOD], "b": [EMPTY]}
    reader = extractor(endpoint)
    assert reader.extract(["a", "b"]) == [EXPECTED, Knowledge()]
    assert reader.num_skipped == 0
    assert sorted(request["messages"][1]["content"] for request in endpoint[1].requests) == ["a", "b"]
    told = {request["messages"][0]["content"] for request in endpoint[1].requests}
    assert told == {shipped_prompt("knowledge").system}


BAD = [
    answer("Here you are: {}"),
    answer("[]"),
    answer('{"entities": ['),
    answer(None),
    answer({"entities": [METZ]}),
    answer({"entities": [{**METZ, "age": 3}], "relations": []}),
    answer({"entities": [{**METZ, "name": 7}], "relations": []}),
    answer({"entities": [{**METZ, "name": " - "}], "relations": []}),
    answer({"entities": {}, "relations": []}),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_is_asked_for_again(endpoint: Any, bad: Any) -> None:
    endpoint[1].script = {"a": [bad, bad, GOOD]}
    reader = extractor(endpoint)
    assert reader.extract(["a"]) == [EXPECTED]
    assert (reader.num_skipped, len(endpoint[1].requests)) == (0, 3)


def test_what_stays_bad_is_counted_and_skipped(endpoint: Any) -> None:
    endpoint[1].script = {"a": [GOOD], "b": BAD[:2], "c": [GOOD]}
    reader = extractor(endpoint, tries=2)
    assert reader.extract(["a", "b", "c"]) == [EXPECTED, Knowledge(), EXPECTED]
    assert (reader.num_skipped, reader.skipped) == (1, ["b"])


@pytest.mark.parametrize("status", [429, 500])
def test_an_endpoint_that_stumbles_is_asked_again(endpoint: Any, status: int) -> None:
    endpoint[1].script = {"a": [(status, ""), GOOD]}
    assert extractor(endpoint).extract(["a"]) == [EXPECTED]


def test_an_endpoint_that_fails_is_an_error(endpoint: Any) -> None:
    endpoint[1].script = {"a": [(500, "")] * 9}
    with pytest.raises(ValueError, match="no usable answer in 6 tries"):
        extractor(endpoint).extract(["a"])


def test_parse_knowledge_joins_names_and_adds_ends() -> None:
    other = {**METZ, "name": "the METZ", "description": "Again."}
    relations = [DIED, {**DIED, "tail": "metz"}, {**DIED, "tail": "Nancy"}, {**DIED, "tail": "lothair II"}]
    knowledge = parse_knowledge(json.dumps({"entities": [METZ, other, KING], "relations": relations}))
    assert knowledge == Knowledge(
        (*EXPECTED.entities, Entity("Nancy", "", "He died in Metz.")),
        (*EXPECTED.relations, Relation("Lothair II", "died in", "Nancy", "He died in Metz.")),
    )


def test_long_texts_are_cut(endpoint: Any) -> None:
    endpoint[1].script = {"ab": [GOOD]}
    assert extractor(endpoint, max_characters=2).extract(["abc"]) == [EXPECTED]


def test_fingerprint() -> None:
    model = LanguageModel("http://localhost/v1", "m")
    plain = LanguageModelKnowledgeExtractor(model)
    assert plain.fingerprint == LanguageModelKnowledgeExtractor(LanguageModel("http://other/v1", "m")).fingerprint
    others = [
        LanguageModelKnowledgeExtractor(model, prompt=Prompt("p", "{text}")),
        LanguageModelKnowledgeExtractor(model, max_characters=9),
    ]
    assert len({each.fingerprint for each in (plain, *others)}) == 3


@pytest.mark.parametrize("settings", [{"tries": 0}, {"max_characters": 0}])
def test_settings_out_of_range(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be a positive integer"):
        LanguageModelKnowledgeExtractor(LanguageModel("http://localhost/v1", "m"), **settings)
