import json
from typing import Any

import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank_papers.knowledge.two_stage_extractor import TwoStageKnowledgeExtractor, parse_names, parse_relations

KET = {"entities": shipped_prompt("ket_entities"), "relations": shipped_prompt("ket_relations")}


def test_entities_and_then_triples_between_them(scripted_model: Any) -> None:
    def reply(system: str, question: str) -> Any:
        if system == shipped_prompt("ea_graphrag_entities").system:
            return {"entities": ["Metz", "Lothair", "metz"]}
        assert system == shipped_prompt("ea_graphrag_triples").system
        assert question == "Entities: Metz; Lothair\n\nPassage: text"
        return {"triples": [["Lothair", "died in", "metz"], ["Metz", "is", "metz"]]}

    extractor = TwoStageKnowledgeExtractor(scripted_model(reply))
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

    (knowledge,) = TwoStageKnowledgeExtractor(scripted_model(reply), **KET).extract(["text"])
    assert knowledge.entities == (Entity("Metz", "city", "A city."), Entity("Nancy", "", "Nancy is near."))
    assert knowledge.relations == (Relation("Nancy", "near", "Metz", "Nancy is near."),)


def test_what_stays_unusable_is_skipped(scripted_model: Any) -> None:
    def reply(system: str, question: str) -> Any:
        if "empty" in question:
            return {"entities": []}
        return "no" if "rubbish" in question or "Entities:" in question else {"entities": ["Metz"]}

    model = scripted_model(reply)
    extractor = TwoStageKnowledgeExtractor(model, tries=2)
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


def test_fingerprint_and_settings(scripted_model: Any) -> None:
    model = scripted_model(json.dumps)
    plain = TwoStageKnowledgeExtractor(model)
    others = [TwoStageKnowledgeExtractor(model, **KET), TwoStageKnowledgeExtractor(model, max_characters=9)]
    assert len({extractor.fingerprint for extractor in (plain, *others)}) == 3
    with pytest.raises(ValueError, match="`tries` must be a positive integer"):
        TwoStageKnowledgeExtractor(model, tries=0)
    with pytest.raises(ValueError, match=r"must have the places \['entities', 'text'\]"):
        TwoStageKnowledgeExtractor(model, relations=Prompt("p", "{text}"))
