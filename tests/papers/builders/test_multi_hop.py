"""HotpotQA, 2WikiMultihopQA, MuSiQue and KET-RAG, made small; two questions share a passage."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import Built, build, jsonl

ANT, BEE, CAT = ["Ant", ["It walks.", " It works."]], ["Bee", ["It flies."]], ["Cat", ["Meow.", "Purr."]]
HOTPOT: list[dict[str, Any]] = [
    {"_id": "h0", "question": "Who flies and who walks?", "answer": "bee", "type": "bridge", "level": "easy",
     "supporting_facts": [["Bee", 0], ["Ant", 0], ["Ant", 1]], "context": [ANT, BEE, CAT]},
    {"_id": "h1", "question": "Who purrs?", "answer": "cat", "supporting_facts": [["Cat", 1]],
     "context": [CAT, ["Ant", ["Another ant."]]]},
    {"_id": "h2", "question": "Who?", "answer": "dog", "supporting_facts": [["Dog", 0]], "context": [CAT]},
    {"_id": "h3", "question": "What?", "context": [["Eel", ["Wet."]]]},
]  # fmt: skip
MUSIQUE: list[dict[str, Any]] = [
    {"id": "2hop__1_2", "question": "Who?", "answer": "bee", "answer_aliases": ["a bee"], "answerable": True,
     "paragraphs": [{"idx": 0, "title": "Ant", "paragraph_text": "It walks.", "is_supporting": True},
                    {"idx": 1, "title": "Bee", "paragraph_text": "It flies.", "is_supporting": False}]},
    {"id": "2hop__3_4", "question": "Not?", "answer": "", "answerable": False,
     "paragraphs": [{"idx": 0, "title": "Eel", "paragraph_text": "Wet.", "is_supporting": True}]},
]  # fmt: skip


def texts(built: Built) -> list[tuple[str, str, str]]:
    return [(doc["_id"], doc["title"], doc["text"]) for doc in built.documents]


@pytest.mark.parametrize(
    ("name", "prefix", "file"),
    [("hotpotqa", "hotpot", "hotpot_dev_distractor_v1.json"), ("2wikimultihopqa", "2wiki", "data/dev.json")],
)
def test_hotpotqas_format(tmp_path: Path, name: str, prefix: str, file: str) -> None:
    built = build(tmp_path, name, {file: HOTPOT})
    assert texts(built) == [
        (f"{prefix}:0", "Ant", "It walks. It works."), (f"{prefix}:1", "Bee", "It flies."),
        (f"{prefix}:2", "Cat", "Meow. Purr."), (f"{prefix}:3", "Ant", "Another ant."),
    ]  # fmt: skip
    assert built.judged("dev") == {"h0": [f"{prefix}:1", f"{prefix}:0"], "h1": [f"{prefix}:2"]}
    assert built.queries[0]["metadata"] == {
        "answer": "bee", "type": "bridge", "level": "easy", "context": [f"{prefix}:{i}" for i in range(3)],
    }  # fmt: skip
    assert [(each["id"], each["reason"]) for each in built.dropped] == [
        ("h2", "has a supporting passage that is not among its passages"), ("h3", "has no supporting facts"),
    ]  # fmt: skip


def test_musiques_format(tmp_path: Path) -> None:
    files: dict[str, Any] = {"musique_ans_v1.0_train.jsonl": jsonl(*MUSIQUE), "musique_full_v1.0_train.jsonl": "x"}
    built = build(tmp_path, "musique", files)
    assert texts(built) == [("musique:0", "Ant", "It walks."), ("musique:1", "Bee", "It flies.")]
    assert built.judged("train") == {"2hop__1_2": ["musique:0"]}
    assert built.queries[0]["metadata"]["answer_aliases"] == ["a bee"]
    assert built.card["dropped"] == {"query: has no answer in its paragraphs": 1}


def test_a_sample_is_the_same_every_time_and_brings_its_passages_alone(tmp_path: Path) -> None:
    records = [{**HOTPOT[0], "_id": f"q{i}", "context": [[f"T{i}", ["x"]]], "supporting_facts": [[f"T{i}", 0]]}
               for i in range(20)]  # fmt: skip
    files: dict[str, Any] = {"hotpot_dev.json": records, "hotpot_train.json": [HOTPOT[1]]}
    drawn = [
        [query["_id"] for query in build(tmp_path / str(i), "hotpotqa", files, sample=5, seed=seed).queries]
        for i, seed in enumerate((0, 0, 1))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 6
    built = Built(tmp_path / "0" / "out", {})
    assert {doc["title"] for doc in built.documents} == {f"T{i[1:]}" for i in drawn[0] if i[0] == "q"} | {"Cat", "Ant"}


@pytest.mark.parametrize(
    ("folder", "name", "file", "split"),
    [("hotpotqa", "hotpotqa", "hotpot_train.json", "train"),
     ("2wikimultihopqa_train", "2wikimultihopqa", "dev.json", "dev")],
)  # fmt: skip
def test_against_the_folders_judgements(
    datasets: Path, tmp_path: Path, folder: str, name: str, file: str, split: str
) -> None:
    given = Built(datasets / folder, {})
    passages, judged = {doc_id: rest for doc_id, *rest in texts(given)}, given.judged("train")
    records = [
        {"_id": q["_id"], "question": q["text"],
         "context": [[passages[d][0], [passages[d][1]]] for d in q["metadata"]["context"]],
         "supporting_facts": [[passages[d][0], 0] for d in judged[q["_id"]]]}
        for q in given.queries if q["_id"] in judged
    ]  # fmt: skip
    built = build(tmp_path, name, {file: records})
    found = {doc_id: rest for doc_id, *rest in texts(built)}
    assert {q: sorted(found[d] for d in docs) for q, docs in built.judged(split).items()} == {
        q: sorted(passages[d] for d in docs) for q, docs in judged.items()
    }


KETRAG: dict[str, Any] = {
    "ragtest-musique/input/document.txt": "It flies.\nIt  walks.\nIt flies.\nMeow. Purr.\n",
    "ragtest-musique/qa-pairs/qa-pairs.json": [
        {"id": "2hop__1_2", "answer": "bee", "question": "Who?"}, {"id": "h0", "answer": "", "question": "Who flies?"},
        {"id": "h1", "answer": "cat", "question": "Who purrs?"}, {"id": "new", "answer": "x", "question": "What?"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("file", ["hotpot_dev.json", "data/dev.json"])
def test_ketrags_judgements_from_the_data_sets_of_the_questions(tmp_path: Path, file: str) -> None:
    built = build(tmp_path / "alone", "ketrag", KETRAG)
    assert [(doc["_id"], doc["text"]) for doc in built.documents][1] == ("ket:1", "It  walks.")
    assert built.queries[0] == {"_id": "2hop__1_2", "text": "Who?", "metadata": {"answer": "bee"}}
    assert built.card["counts"]["qrels"] == {}
    own: dict[str, Any] = {"musique_ans_v1.0_dev.jsonl": jsonl(*MUSIQUE), file: HOTPOT}
    built = build(tmp_path, "ketrag", KETRAG | own)
    assert built.judged("test_silver") == {"2hop__1_2": ["ket:1"], "h1": ["ket:3"]}
    assert [(each["id"], each["reason"]) for each in built.dropped] == [
        ("h0", "a supporting paragraph is not in the text"),
        ("new", "the question is not in the files of its data set"),
    ]


def test_ketrag_against_the_folder_with_musiques_own_file_made_of_it(datasets: Path, tmp_path: Path) -> None:
    given = Built(datasets / "ketrag_musique", {})
    judged = given.judged("test_silver")
    passages = {doc["_id"]: {"title": doc["title"], "paragraph_text": doc["text"]} for doc in given.documents}
    musique = [
        {"id": query, "question": "", "paragraphs": [passages[doc] | {"is_supporting": True} for doc in docs]}
        for query, docs in judged.items()
    ]
    pairs = [{"id": q["_id"], "question": q["text"], "answer": q["metadata"]["answer"]} for q in given.queries]
    files: dict[str, Any] = {
        "input/document.txt": "\n".join(doc["text"] for doc in given.documents),
        "qa-pairs.json": pairs,
        "musique_ans_v1.0_dev.jsonl": jsonl(*musique),
    }
    built = build(tmp_path, "ketrag", files)
    assert [(doc["_id"], doc["text"]) for doc in built.documents] == [(d["_id"], d["text"]) for d in given.documents]
    assert [query["_id"] for query in built.queries] == [query["_id"] for query in given.queries]
    assert len(judged) == 114
    found = built.judged("test_silver")
    assert {q: sorted(docs) for q, docs in found.items()} == {q: sorted(docs) for q, docs in judged.items()}
