import json
from typing import Any

import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank_papers.knowledge.language_model import (
    LanguageModelEntityExtractor,
    LanguageModelKnowledgeExtractor,
    parse_entities,
    parse_knowledge,
    parse_names,
    parse_relations,
)
from tests.support.language_models import ChatEndpoint

pytest.importorskip("httpx", reason="httpx is optional")

METZ = {"name": "Metz", "type": "city", "description": "A city."}
KING = {"name": "Lothair II", "type": "person", "description": "A king."}
DIED = {"head": "Lothair II", "relation": "died in", "tail": "Metz", "description": "He died in Metz."}
EXPECTED = Knowledge(
    (Entity("Metz", "city", "A city."), Entity("Lothair II", "person", "A king.")),
    (Relation("Lothair II", "died in", "Metz", "He died in Metz."),),
)
TRIPLES = {"prompt": shipped_prompt("ea_graphrag_entities"), "relations": shipped_prompt("ea_graphrag_triples")}
KET = {"prompt": shipped_prompt("ket_entities"), "relations": shipped_prompt("ket_relations")}


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
    assert reader.skipped == []
    assert sorted(request["messages"][1]["content"] for request in endpoint[1].requests) == ["a", "b"]
    told = {request["messages"][0]["content"] for request in endpoint[1].requests}
    assert told == {shipped_prompt("knowledge").system}


BAD = [
    "Here you are: {}",
    "[]",
    '{"entities": [',
    {"entities": [METZ]},
    {"entities": [{**METZ, "age": 3}], "relations": []},
    {"entities": [{**METZ, "name": 7}], "relations": []},
    {"entities": [{**METZ, "name": " - "}], "relations": []},
    {"entities": {}, "relations": []},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_is_requested_again(scripted_model: Any, bad: Any) -> None:
    good = {"entities": [METZ, KING], "relations": [DIED]}
    model = scripted_model(lambda system, question: good if "earlier answer" in question else bad)
    reader = LanguageModelKnowledgeExtractor(model)
    assert reader.extract(["a"]) == [EXPECTED]
    assert (reader.skipped, len(model.asked)) == ([], 2)


def test_what_stays_bad_is_skipped(scripted_model: Any) -> None:
    good = {"entities": [METZ, KING], "relations": [DIED]}
    model = scripted_model(lambda system, question: "no" if question.startswith("b") else good)
    reader = LanguageModelKnowledgeExtractor(model, tries=2)
    assert reader.extract(["a", "b", "c"]) == [EXPECTED, Knowledge(), EXPECTED]
    assert (reader.skipped, len(model.asked)) == (["b"], 4)


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
        LanguageModelKnowledgeExtractor(model, **TRIPLES),
        LanguageModelKnowledgeExtractor(model, **KET),
        LanguageModelKnowledgeExtractor(model, **KET, max_characters=9),
    ]
    assert len({each.fingerprint for each in (plain, *others)}) == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tries": 0}, "`tries` must be a positive integer"),
        ({"max_characters": 0}, "`max_characters` must be a positive integer"),
        ({"relations": Prompt("p", "{text}")}, r"must have the places \['entities', 'text'\]"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LanguageModelKnowledgeExtractor(LanguageModel("http://localhost/v1", "m"), **settings)


def test_entities_and_then_triples_between_them(scripted_model: Any) -> None:
    def reply(system: str, question: str) -> Any:
        if system == shipped_prompt("ea_graphrag_entities").system:
            return {"entities": ["Metz", "Lothair", "metz"]}
        assert system == shipped_prompt("ea_graphrag_triples").system
        assert question == "Entities: Metz; Lothair\n\nPassage: text"
        return {"triples": [["Lothair", "died in", "metz"], ["Metz", "is", "metz"]]}

    extractor = LanguageModelKnowledgeExtractor(scripted_model(reply), **TRIPLES)
    metz, lothair = Entity("Metz", "", ""), Entity("Lothair", "", "")
    died = Relation("Lothair", "died in", "Metz", "Lothair died in metz")
    assert extractor.extract(["text"]) == [Knowledge((metz, lothair), (died,))]
    assert extractor.skipped == []


def test_kets_prompts_ask_for_descriptions(scripted_model: Any) -> None:
    def reply(system: str, question: str) -> Any:
        if "Entities:" not in question:
            return {"entities": [{"name": "Metz", "type": "city", "description": "A city."}]}
        row = {"head": "Nancy", "relation": "near", "tail": "Metz", "description": "Nancy is near."}
        return {"relations": [row]}

    (knowledge,) = LanguageModelKnowledgeExtractor(scripted_model(reply), **KET).extract(["text"])
    assert knowledge.entities == (Entity("Metz", "city", "A city."), Entity("Nancy", "", "Nancy is near."))
    assert knowledge.relations == (Relation("Nancy", "near", "Metz", "Nancy is near."),)


def test_what_stays_unusable_of_two_requests_is_skipped(scripted_model: Any) -> None:
    def reply(system: str, question: str) -> Any:
        if "empty" in question:
            return {"entities": []}
        return "no" if "rubbish" in question or "Entities:" in question else {"entities": ["Metz"]}

    model = scripted_model(reply)
    extractor = LanguageModelKnowledgeExtractor(model, tries=2, **TRIPLES)
    names = [knowledge.names for knowledge in extractor.extract(["rubbish", "names alone", "empty"])]
    assert names == [[], ["Metz"], []]
    assert extractor.skipped == ["rubbish", "names alone"]
    assert len(model.asked) == 3 + 1 + 1 + 1  # all, the rubbish again; then the triples of one, twice


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"triples": {}}', '{"triples": [["a", "b"]]}', '{"triples": [[1, 2, 3]]}', '{"other": []}']
)
def test_other_relations_are_refused(content: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_relations(content)


@pytest.mark.parametrize("content", ['{"entities": [1]}', '{"entities": ["a", {}]}', '{"entities": ["!"]}'])
def test_other_entities_are_refused(content: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_names(content)


Endpoint = tuple[str, type[ChatEndpoint]]
PLAIN = Prompt("p", "{text}", system="p")


def names(*names: str) -> tuple[int, Any]:
    return answer({"entities": list(names)})


def test_names_in_order_and_with_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = endpoint
    monkeypatch.setenv("SOME_KEY", "secret")
    handler.script = {"one": [names("A")], "two": [names()], "thr": [names("B", "C")]}
    extractor = LanguageModelEntityExtractor(url, "m", api_key_variable="SOME_KEY", max_characters=3)
    assert extractor.extract(["one", "two", "three"]) == [
        Knowledge.from_names(["A"]),
        Knowledge(),
        Knowledge.from_names(["B", "C"]),
    ]
    assert {request["path"] for request in handler.requests} == {"/v1/chat/completions"}
    assert {(request["model"], request["temperature"]) for request in handler.requests} == {("m", 0)}
    assert {request["key"] for request in handler.requests} == {"Bearer secret"}
    assert "secret" not in extractor.fingerprint


def test_fingerprint_of_names() -> None:
    plain = LanguageModelEntityExtractor("http://a/v1", "m", prompt=PLAIN, max_characters=9)
    assert plain.fingerprint == repr(("language model", "m", "p", 9))  # as of version 0.1
    others = [
        LanguageModelEntityExtractor("http://a/v1", "m", prompt=PLAIN, max_characters=9, **settings)
        for settings in ({"temperature": 0.5}, {"request": {"max_tokens": 5}})
    ]
    assert len({extractor.fingerprint for extractor in (plain, *others)}) == 3
    elsewhere = LanguageModelEntityExtractor("http://b/v1", "m", prompt=PLAIN, max_characters=9, timeout=1.0)
    assert elsewhere.fingerprint == plain.fingerprint


def test_graphers_prompt_asks_for_dates_and_reads_a_python_list(endpoint: Endpoint) -> None:
    url, handler = endpoint
    prompt = shipped_prompt("grapher_entities")
    text = "Lothair died in Piacenza on 8 August 869."
    asked = prompt.fill(text=text)
    assert "dates" in asked
    assert asked.endswith(f"Text:\n\n{text}\n\nOutput:")
    handler.script = {asked: [answer("Sure!"), answer("```python\n['Lothair', 'Piacenza', '8 August 869']\n```")]}
    extractor = LanguageModelEntityExtractor(url, "m", prompt=prompt, pause=0.0)
    assert extractor.extract([text])[0].names == ["Lothair", "Piacenza", "8 August 869"]
    assert [message["role"] for message in handler.requests[0]["messages"]] == ["user"]  # A.1.1 is one message


@pytest.mark.parametrize("content", ["['a", "{'entities': 'a'}", '["a", 1]', "a", "__import__('os')", "(" * 10_000])
def test_what_is_no_list_of_names_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_entities(content)
