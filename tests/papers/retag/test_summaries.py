from collections.abc import Sequence

from graphrerank_papers.retag.communities import Hierarchy
from graphrerank_papers.retag.summaries import Material, Relations, element_texts, parent_context, summarise_communities

# a star around 1 and a pair behind it: 0-1, 1-2, 1-3, 3-4
ENDS = [(0, 1), (1, 2), (1, 3), (3, 4)]
RELATIONS = Relations.of(ENDS, [0, 1, 2, 3])
HIERARCHY = Hierarchy([0, 1, 1], [-1, 0, 0], [[0, 1, 2, 3, 4], [0, 1, 2], [3, 4]])


def material(length: int = 1) -> Material:
    """Text ``n`` tells of edge ``n``; text ``4 + n`` of entity ``n``."""
    return Material(
        texts=[f"t{number}" for number in range(9)],
        num_tokens=[length] * 9,
        sources=[[number] for number in range(9)],
        nodes=[[4 + node] for node in range(5)],
        edges=[[edge] for edge in range(4)],
    )


class Recorder:
    """Sums up with the first text; remembers what it was given."""

    def __init__(self) -> None:
        self.contexts: list[list[int]] = []

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material) -> list[list[int]]:
        assert all(number < len(material.texts) for numbers in contexts for number in numbers)
        self.contexts += [list(numbers) for numbers in contexts]
        return [list(numbers[:1]) for numbers in contexts]


def summarise(limit: int) -> tuple[list[list[int]], list[list[int]]]:
    recorder = Recorder()
    found = summarise_communities(HIERARCHY, RELATIONS, material(), recorder.summarise, context_tokens=limit)
    return found, recorder.contexts


def test_elements_come_in_the_order_of_their_prominence() -> None:
    assert RELATIONS.degree == {0: 1, 1: 3, 2: 1, 3: 2, 4: 1}
    assert element_texts(HIERARCHY, RELATIONS, material()) == [
        [2, 0, 1, 3, 5, 7, 4, 6, 8],  # edges of degrees 5, 4, 4, 3; nodes of 3, 2, 1, 1, 1
        [0, 1, 5, 4, 6],
        [3, 7, 8],
    ]


def test_what_fits_is_summed_up_as_a_leaf() -> None:
    found, contexts = summarise(9)
    assert contexts == [[0, 1, 5, 4, 6], [3, 7, 8], [2, 0, 1, 3, 5, 7, 4, 6, 8]]
    assert found == [[2], [0], [3]]


def test_the_longest_child_is_replaced_first() -> None:
    assert summarise(5)[1][-1] == [0, 3, 7, 8]
    assert summarise(3)[1][-1] == [0, 3]  # both
    assert summarise(1)[1] == [[0], [3], [0]]  # even so too long: the prominent first


def test_a_leaf_that_is_too_long_keeps_the_prominent() -> None:
    assert summarise(4)[1][0] == [0, 1, 5, 4]


def test_parent_context_counts_shared_texts_once() -> None:
    assert parent_context([[0, 1], [1, 2]], [[0], [2]], [2, 3, 2], limit=7) == [0, 1, 2]
    assert parent_context([[0, 1], [1, 2]], [[0], [2]], [2, 3, 2], limit=6) == [0, 2]
    assert parent_context([[0, 1], [1, 2]], [[0], [2]], [2, 3, 2], limit=4) == [0, 2]
    assert parent_context([], [], [], limit=4) == []


def test_a_graph_without_communities() -> None:
    empty = Hierarchy([], [], [])
    assert summarise_communities(empty, Relations.of([], []), material(), Recorder().summarise, context_tokens=4) == []
