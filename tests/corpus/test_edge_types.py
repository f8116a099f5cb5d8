import pytest

from graphrerank.corpus.edge_types import EDGE_TYPES, MEANINGS, edge_type_numbers, edge_type_of


def test_names_of_edge_files_have_a_meaning_whatever_their_case() -> None:
    assert edge_type_numbers(EDGE_TYPES) == [edge_type_of(name) for name in EDGE_TYPES] == [0, 1, 2, 3, 4]
    names = {"foreign_key": "reference", "shared_entity": "entity", "nearest": "similarity", "likes": "other"}
    for name, expected in {**names, "Entity": "entity", "FOREIGN KEY": "reference", "Next-Chunk": "adjacency"}.items():
        assert EDGE_TYPES[edge_type_of(name)] == expected


def test_no_name_has_two_meanings() -> None:
    assert set(MEANINGS) < set(EDGE_TYPES)
    names = [name for group in MEANINGS.values() for name in group.split()]
    assert len(set(names)) == len(names)
    assert not set(names) & set(EDGE_TYPES)


def test_meanings_of_a_user_come_first_and_one_may_hold_for_all_other_names() -> None:
    assert EDGE_TYPES[edge_type_of("mention", {"mention": "adjacency"})] == "adjacency"
    assert EDGE_TYPES[edge_type_of("mention", {"likes": "adjacency"})] == "reference"
    meanings = {"other": "reference", "hates": "other"}
    found = [EDGE_TYPES[edge_type_of(name, meanings)] for name in ("likes", "other", "hates", "knn", "Entity")]
    assert found == ["reference", "reference", "other", "similarity", "entity"]


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`edge_meanings\['other'\]` must be one of .*, got 'wrong'"):
        edge_type_of("likes", {"other": "wrong"})
    with pytest.raises(ValueError, match=r"`edge_meanings\['likes'\]` must be one of .* got 'link' at index 0"):
        edge_type_of("likes", {"likes": "link"})
    with pytest.raises(ValueError, match=r"`edge_types` must be one of .* got 'cites' at index 1"):
        edge_type_numbers(["other", "cites"])
