"""HippoRAG's forms that load_named does not fetch; the others are in tests/data/readers/test_named.py."""

from pathlib import Path
from typing import Any

from tests.support.raw import build

CORPUS = [
    {"title": "Ant", "text": "It walks."},
    {"title": "Bee", "text": "It flies."},
    {"title": "Bee", "text": "Stings."},
]


def test_nq_and_popqa(tmp_path: Path) -> None:
    nq = {"question": "who flies", "reference": ["bee", "a bee"], "contexts": [
        {"title": "Bee", "text": "It  flies.", "is_supporting": True},
        {"title": "Ant", "text": "", "is_supporting": False},
    ]}  # fmt: skip
    files: dict[str, Any] = {"nq_rear.json": [nq], "nq_rear_corpus.json": CORPUS}
    built = build(tmp_path / "nq", "hipporag", files)
    assert built.judged("test") == {"nq_rear:q0": ["nq_rear:1"]}
    assert built.queries[0]["metadata"]["answer"] == ["bee", "a bee"]
    popqa = {"id": 7, "question": "Who walks?", "obj": "ant", "possible_answers": '["ant", "emmet"]',
             "paragraphs": [{"title": "Ant", "text": "It walks."}]}  # fmt: skip
    built = build(tmp_path / "popqa", "hipporag", {"popqa.json": [popqa], "popqa_corpus.json": CORPUS})
    assert built.judged("test") == {"7": ["popqa:0"]}
    assert built.queries[0]["metadata"] == {"answer": "ant", "answer_aliases": ["ant", "emmet"]}
