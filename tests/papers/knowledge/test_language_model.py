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

pytest.importorskip("httpx", reason="httpx is optional")

METZ = {"name": "Metz", "type": "city", "description": "A city."}
KING = {"name": "Lothair II", "type": "person", "description": "A king."}
DIED = {"head": "Lothair II", "relation": "died in", "tail": "Metz", "description": "He died in Metz."}
GOOD = {"entities": [METZ, KING], "relations": [DIED]}
EXPECTED = Knowledge(
    (Entity("Metz", "city", "A city."), Entity("Lothair II", "person", "A king.")),
    (Relation("Lothair II", "died in", "Metz", "He died in Metz."),),
)
TRIPLES = {"prompt": shipped_prompt("ea_graphrag_entities"), "relations": shipped_prompt("ea_graphrag_triples")}
KET = {"prompt": shipped_prompt("ket_entities"), "relations": shipped_prompt("ket_relations")}


def answer(content: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"choices": [{"message": {"content": content if isinstance(content, str) else json.dumps(content)}}]}


def test_each_text_is_asked_for_once_and_cut(endpoint: Any) -> None:
    endpoint[1].script = {"ab": [answer(GOOD)], "b": [answer({"entities": [], "relations": []})]}
    reader = LanguageModelKnowledgeExtractor(LanguageModel(endpoint[0], "m", pause=0.0), max_characters=2)
    assert reader.extract(["abc", "b"]) == [EXPECTED, Knowledge()]
    assert reader.skipped == []
    assert sorted(request["messages"][1]["content"] for request in endpoint[1].requests) == ["ab", "b"]
    told = {request["messages"][0]["content"] for request in endpoint[1].requests}
    assert told == {shipped_prompt("knowledge").system}


@pytest.mark.parametrize(
    "bad",
    [
        "Here you are: {}",
        '{"entities": [',
        {"entities": [METZ]},
        {"entities": [{**METZ, "age": 3}], "relations": []},
        {"entities": [{**METZ, "name": 7}], "relations": []},
        {"entities": [{**METZ, "name": " - "}], "relations": []},
    ],
)
def test_a_bad_answer_is_requested_again_and_skipped_in_the_end(scripted_model: Any, bad: Any) -> None:
    def reply(system: str, question: str) -> Any:
        return GOOD if "earlier answer" in question and not question.startswith("b") else bad

    model = scripted_model(reply)
    reader = LanguageModelKnowledgeExtractor(model, tries=2)
    assert reader.extract(["a", "b"]) == [EXPECTED, Knowledge()]
    assert (reader.skipped, len(model.asked)) == (["b"], 4)


def test_parse_knowledge_joins_names_and_adds_ends() -> None:
    other = {**METZ, "name": "the METZ", "description": "Again."}
    relations = [DIED, {**DIED, "tail": "metz"}, {**DIED, "tail": "Nancy"}, {**DIED, "tail": "lothair II"}]
    knowledge = parse_knowledge(json.dumps({"entities": [METZ, other, KING], "relations": relations}))
    assert knowledge == Knowledge(
        (*EXPECTED.entities, Entity("Nancy", "", "He died in Metz.")),
        (*EXPECTED.relations, Relation("Lothair II", "died in", "Nancy", "He died in Metz.")),
    )


def test_fingerprint() -> None:
    def fingerprint(model: str = "m", **settings: Any) -> str:
        return LanguageModelKnowledgeExtractor(LanguageModel("http://a/v1", model), **settings).fingerprint

    elsewhere = LanguageModelKnowledgeExtractor(LanguageModel("http://other/v1", "m"))
    assert fingerprint() == elsewhere.fingerprint
    others = [{"prompt": Prompt("p", "{text}")}, {"max_characters": 9}, TRIPLES, KET, {**KET, "max_characters": 9}]
    assert len({fingerprint(), *(fingerprint(**settings) for settings in others)}) == 6
    with pytest.raises(ValueError, match=r"must have the placeholders \['entities', 'text'\]"):
        fingerprint(relations=Prompt("p", "{text}"))


def test_entities_and_then_triples_between_them(scripted_model: Any) -> None:
    def reply(system: str, question: str) -> Any:
        if "empty" in question:
            return {"entities": []}
        if system == shipped_prompt("ea_graphrag_entities").system:
            return "no" if "rubbish" in question else {"entities": ["Metz", "Lothair", "metz"]}
        assert system == shipped_prompt("ea_graphrag_triples").system
        assert question.startswith("Entities: Metz; Lothair\n\nPassage: ")
        if "alone" in question:
            return "no"
        return {"triples": [["Lothair", "died in", "metz"], ["Metz", "is", "metz"]]}

    model = scripted_model(reply)
    extractor = LanguageModelKnowledgeExtractor(model, tries=2, **TRIPLES)
    metz, lothair = Entity("Metz", "", ""), Entity("Lothair", "", "")
    died = Relation("Lothair", "died in", "Metz", "Lothair died in metz")
    whole, rubbish, alone, empty = extractor.extract(["text", "rubbish", "names alone", "empty"])
    assert whole == Knowledge((metz, lothair), (died,))
    assert (rubbish, alone, empty) == (Knowledge(), Knowledge((metz, lothair)), Knowledge())
    assert extractor.skipped == ["rubbish", "names alone"]
    assert len(model.asked) == 4 + 1 + 2 + 1  # all, the rubbish again; then the triples of two, of one of them again


def test_kets_prompts_ask_for_descriptions(scripted_model: Any) -> None:
    def reply(system: str, question: str) -> Any:
        if "Entities:" not in question:
            return {"entities": [METZ]}
        return {"relations": [{"head": "Nancy", "relation": "near", "tail": "Metz", "description": "Nancy is near."}]}

    (knowledge,) = LanguageModelKnowledgeExtractor(scripted_model(reply), **KET).extract(["text"])
    assert knowledge.entities == (Entity("Metz", "city", "A city."), Entity("Nancy", "", "Nancy is near."))
    assert knowledge.relations == (Relation("Nancy", "near", "Metz", "Nancy is near."),)


@pytest.mark.parametrize(
    ("parse", "content"),
    [
        *(
            (parse_relations, bad)
            for bad in ("[]", "{}", '{"triples": [["a", "b"]]}', '{"triples": [["!", "b", "c"]]}')
        ),
        *((parse_names, bad) for bad in ('{"entities": [1]}', '{"entities": ["a", {}]}', '{"entities": ["!"]}')),
        *((parse_entities, bad) for bad in ("['a", "{'entities': 'a'}", '["a", 1]', "__import__('os')", "(" * 10_000)),
    ],
)
def test_answers_of_another_form_are_refused(parse: Any, content: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse(content)


def test_names_in_order_and_with_key(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = endpoint
    monkeypatch.setenv("SOME_KEY", "secret")
    handler.script = {name: [answer({"entities": [*name[1:]]})] for name in ("1A", "2", "3BC")}
    extractor = LanguageModelEntityExtractor(url, "m", api_key_variable="SOME_KEY", max_characters=3)
    assert [knowledge.names for knowledge in extractor.extract(["1A", "2", "3BCD"])] == [["A"], [], ["B", "C"]]
    assert {(request["path"], request["key"]) for request in handler.requests} == {
        ("/v1/chat/completions", "Bearer secret")
    }
    assert {(request["model"], request["temperature"]) for request in handler.requests} == {("m", 0)}
    assert "secret" not in extractor.fingerprint


def test_fingerprint_of_names() -> None:
    def fingerprint(url: str = "http://a/v1", **settings: Any) -> str:
        prompt = Prompt("p", "{text}", system="p")
        return LanguageModelEntityExtractor(url, "m", prompt=prompt, max_characters=9, **settings).fingerprint

    assert fingerprint() == repr(("language model", "m", "p", 9))  # as of version 0.1
    assert len({fingerprint(), fingerprint(temperature=0.5), fingerprint(request={"max_tokens": 5})}) == 3
    assert fingerprint("http://b/v1", timeout=1.0) == fingerprint()


def test_graphers_prompt_asks_for_dates_and_reads_a_python_list(endpoint: Any) -> None:
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
