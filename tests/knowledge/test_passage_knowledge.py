import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation

METZ, LOTHAIR = Entity("Metz", "GPE", "A town."), Entity("Lothair II", "PERSON", "A king.")


@pytest.mark.parametrize(
    ("entities", "relations", "message"),
    [
        ((METZ, METZ), (), r"`entities` must have unique, non-blank names, got \['Metz', 'Metz'\]"),
        ((METZ, Entity(" ", "", "")), (), r"non-blank names, got \['Metz', ' '\]"),
        ((METZ,), (Relation("Metz", "near", "Nancy", ""),), "must connect names in `entities`, got 'Metz' and 'Nancy'"),
        ((METZ,), (Relation("metz", "near", "Metz", ""),), "must connect names in `entities`, got 'metz' and 'Metz'"),
    ],
)
def test_knowledge_that_does_not_fit_together(
    entities: tuple[Entity, ...], relations: tuple[Relation, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Knowledge(entities, relations)
