import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.ea_graphrag.syntax.constituency import Units, count_units, read_tree
from graphrerank_papers.ea_graphrag.syntax.dependency_units import approximate_units

# Counted by hand by the same definitions as in test_constituency.py: W, S, VP, C, T, DC, CT, CP, CN
GOLD = {
    "The big dog slept in the garden.": (7, 1, 1, 1, 1, 0, 0, 0, 1),
    "Which film did the director of Jaws make?": (8, 1, 1, 1, 1, 0, 0, 0, 1),
    "Is he the king of Spain?": (6, 1, 1, 1, 1, 0, 0, 0, 1),
    "The effects of global warming": (5, 1, 0, 0, 0, 0, 0, 0, 2),
    "John sang and Mary danced.": (5, 1, 2, 2, 2, 0, 0, 0, 0),
    "Tom and Ann cooked and ate fish.": (7, 1, 1, 1, 1, 0, 0, 2, 0),
    "The book that she wrote won a prize.": (8, 1, 2, 2, 1, 1, 1, 0, 1),
    "If it rains, we know that the game will stop.": (10, 1, 3, 3, 1, 2, 1, 0, 1),
    "Compare the two plans.": (4, 1, 1, 1, 1, 0, 0, 0, 0),
    "I think he sleeps. We left.": (6, 2, 3, 3, 2, 1, 1, 0, 1),
    "He wants to read the book.": (6, 1, 2, 1, 1, 0, 0, 0, 0),
    "The story told by her was long.": (7, 1, 1, 1, 1, 0, 0, 0, 1),
    "  \n ": (0, 0, 0, 0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("text", GOLD)
def test_against_counts_by_hand(text: str, nlp: Any) -> None:
    assert approximate_units(nlp(text)) == Units(*GOLD[text])


def test_against_gold_trees_of_gum(datasets: Path, nlp: Any) -> None:
    from spacy.tokens import Doc

    lines = (datasets / "treebank_gum" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    trees = [read_tree(row["tree"]) for row in map(json.loads, lines) if not row["nc"]][::10]
    written = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]"}  # as the text has it, not the treebank
    texts = [[written.get(str(leaf.word), str(leaf.word)) for leaf in tree.leaves()] for tree in trees]
    documents = nlp.pipe(Doc(nlp.vocab, words=words) for words in texts)
    found, gold = list(map(approximate_units, documents)), [count_units([tree]) for tree in trees]
    limits = {"W": 0.1, "VP": 0.25, "C": 0.25, "T": 0.25, "DC": 0.2, "CT": 0.15, "CP": 0.15, "CN": 0.5}
    for unit, limit in limits.items():
        errors = [abs(getattr(a, unit) - getattr(b, unit)) for a, b in zip(found, gold, strict=True)]
        assert statistics.mean(errors) < limit
