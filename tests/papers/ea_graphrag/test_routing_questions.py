from pathlib import Path

import pytest

from graphrerank_papers.ea_graphrag.routing_questions import read_routing_questions
from tests.papers.ea_graphrag.questions import write_questions


def test_each_part_with_its_labels(tmp_path: Path) -> None:
    file = write_questions(tmp_path, ["a", "b"], ["c"], {"d": "graph"})
    texts, labels = read_routing_questions(file, "training")
    assert (texts, labels.tolist()) == (["a", "b", "c"], [0, 0, 1])
    texts, labels = read_routing_questions(file, "validation")
    assert (texts, labels.tolist()) == (["d"], [1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]\n", r"line 1: expected a JSON object"),
        (
            '{"text": "a", "right": "both"}\n',
            r"line 1: expected an object .* and with `right` from \['dense', 'graph'\]",
        ),
        ('{"text": "a", "right": "graph"}\n', r"must have training questions of both paths, got \[0, 1\]"),
    ],
)
def test_files_of_another_format_are_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_routing_questions(file, "training")
