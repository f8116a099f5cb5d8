import pytest

from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation

METZ, LOTHAIR = Entity("Metz", "GPE", "A town."), Entity("Lothair II", "PERSON", "A king.")


@pytest.mark.parametrize(
    ("entities", "relations", "message"),
    [
        ((METZ, METZ), (), r"`entities` must have different names, none of them blank, got \['Metz', 'Metz'\]"),
        ((METZ, Entity(" ", "", "")), (), r"none of them blank, got \['Metz', ' '\]"),
        ((METZ,), (Relation("Metz", "near", "Nancy", ""),), "must join names of `entities`, got 'Metz', 'Nancy'"),
        ((METZ,), (Relation("metz", "near", "Metz", ""),), "must join names of `entities`, got 'metz', 'Metz'"),
    ],
)
def test_knowledge_that_does_not_fit_together(
    entities: tuple[Entity, ...], relations: tuple[Relation, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Knowledge(entities, relations)
