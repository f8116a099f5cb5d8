import json

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank.data.drafted_questions import read_drafted

NUMBERS = {"a": 0, "b": 1, "left out": -1}
CORPUS = [{"_id": name, "text": f"{name} holds water and {name}stone"} for name in ("lake", "well", "sea")]


def write(path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_lines(tmp_path):
    file = write(
        tmp_path / "d.jsonl",
        {"text": "q", "relevant": ["b", "a", "b"], "drafted_by": "words"},
        {"text": "r", "relevant": ["a", "left out"]},
    )
    assert read_drafted(file, NUMBERS) == [("q", [1, 0])]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": " ", "relevant": ["a"]}, "d.jsonl, line 1: needed a `text` that is not blank"),
        ({"text": "q", "relevant": []}, "d.jsonl, line 1: needed .*ids of the corpus, one at least"),
        ({"text": "q", "relevant": "a"}, "d.jsonl, line 1: needed .*ids of the corpus, one at least"),
        ({"text": "q", "relevant": ["c"]}, "d.jsonl, line 1: needed .*ids of the corpus in `relevant`.*c"),
        ({"text": "q", "relevant": ["left out"]}, "d.jsonl: needed a question with documents of the corpus"),
    ],
)
def test_refused(tmp_path, row, message):
    with pytest.raises(ValueError, match=message):
        read_drafted(write(tmp_path / "d.jsonl", row), NUMBERS)


def test_a_folder_trains_on_the_first_of_its_file_in_the_place_of_own_drafts(tmp_path):
    write(tmp_path / "corpus.jsonl", *CORPUS)
    assert Dataset.from_folder(tmp_path, drafted=5).query_texts  # drafted here
    rows = [{"text": f"question {number}", "relevant": [CORPUS[number % 3]["_id"]]} for number in range(30)]
    write(tmp_path / "drafted.jsonl", *rows)
    dataset = Dataset.from_folder(tmp_path, drafted=20)
    assert dataset.drafted
    assert dataset.query_texts == [row["text"] for row in rows[:20]]
    assert dataset.query_ids[0] == "drafted-0"
    assert [len(dataset.split(name).queries) for name in ("train", "val")] == [18, 2]
    assert [CORPUS[node]["_id"] for node in dataset.split("train").node] == [row["relevant"][0] for row in rows[:18]]
    assert Dataset.from_folder(tmp_path).splits == {}
