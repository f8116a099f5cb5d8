import dataclasses
import json
import re

import pytest
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.data.dataset import Dataset
from graphrerank.data.synthetic_queries.questions import draft_questions, read_drafted

COUNT = 200
TEMPLATE_WORDS = {"why", "how", "do", "I", "use", "with", "does", "work", "and", "in"}


@pytest.fixture
def dataset(dataset: Dataset) -> Dataset:
    """The ring, with passages of more words, each with three that no other holds."""
    texts = [
        f"The alpha{i} gate is open because of the first{i} lever, and the second{i} wheel is near a bridge."
        for i in range(60)
    ]
    return dataclasses.replace(dataset, graph=dataset.graph.with_passages(texts=texts), known_fingerprint=None)


def drafted_dataset(dataset: Dataset, count: int = COUNT, *, seed: int = 0) -> Dataset:
    return dataset.with_drafts(draft_questions(dataset.graph, count, shares={"pair": 1, "reworded": 0}, seed=seed))


def relevant(dataset: Dataset) -> dict[str, tuple[str, list[int]]]:
    """Texts and relevant passages of the questions of train and val, by id."""
    found: dict[str, tuple[str, list[int]]] = {}
    for split in ("train", "val"):
        qrels = dataset.split(split)
        for query, node in zip(qrels.query.tolist(), qrels.node.tolist(), strict=True):
            found.setdefault(dataset.query_ids[query], (dataset.query_texts[query], []))[1].append(node)
    return found


def test_a_question_is_words_of_its_relevant_passages_which_edges_join(dataset: Dataset) -> None:
    drafted = relevant(drafted_dataset(dataset))
    edges = {tuple(pair) for pair in dataset.graph.typed_edges()[0].tolist()}
    sizes, two = set(), []
    for text, nodes in drafted.values():
        held = [set(dataset.graph.texts[node].replace(",", "").split()) for node in nodes]
        assert set(text.split()) <= set.union(*held) | TEMPLATE_WORDS
        assert all(any((node, other) in edges for other in nodes) for node in nodes if len(nodes) > 1)
        sizes.add(len(nodes))
        if len(nodes) == 2:  # is a word of each needed?
            two.append(all({f"alpha{node}", f"first{node}", f"second{node}"} & {*text.split()} for node in nodes))
    assert sum(two) > len(two) / 2
    assert sizes == {1, 2, 3}
    assert len(drafted) > 0.9 * COUNT
    assert relevant(drafted_dataset(dataset)) == drafted != relevant(drafted_dataset(dataset, seed=1))
    bare = dataset.with_graph(dataset.graph.without_edges())
    assert {len(nodes) for _, nodes in relevant(drafted_dataset(bare)).values()} == {1}
    empty = dataclasses.replace(dataset, query_ids=[], query_texts=[], splits={}, known_fingerprint=None)
    with pytest.raises(ValueError, match=r"only drafted questions are judged.*test_split=val"):
        drafted_dataset(empty).split("test")


GUIDE = (
    "You can rotate the {0} backups with the {0} tool when the disk is full, so that nothing is lost. The {0} archive"
    " is compressed every night because {0} disks are slow. You must store a {0} key in the safe. This page mentions"
    " the green dragon{1}."
)
WORDS = [f"{metal}{number}" for number in range(4) for metal in ("amber", "basalt", "copper", "garnet")]


@pytest.fixture
def guides() -> CorpusGraph:
    """Sixteen pages, all linked to the first, and half of which mention one term."""
    texts = [GUIDE.format(word, " keeper" * (number % 2)) for number, word in enumerate(WORDS)]
    edges = torch.tensor([[number, 0] for number in range(1, 16)])
    titles = [f"{word} backup guide" for word in WORDS]
    graph = CorpusGraph.from_edges(
        WORDS, [f"{title}\n{text}" for title, text in zip(titles, texts, strict=True)], edges, edge_type=REFERENCE
    )
    return graph.with_passages(title_lengths=torch.tensor([len(title) for title in titles], dtype=torch.int32))


def test_questions_of_one_passage_have_words_that_no_other_holds(guides: CorpusGraph) -> None:
    drafts = draft_questions(guides, 60, shares={"pair": 0, "many": 0, "reworded": 0})
    assert {draft.kind for draft in drafts} == {"single", "long"}
    assert all(len(draft.nodes) == 1 and WORDS[draft.nodes[0]] in draft.text for draft in drafts)
    texts = {draft.text for draft in drafts}
    assert texts & {f"why is the {word} archive compressed every night" for word in WORDS}
    long = [draft.text for draft in drafts if draft.kind == "long"]
    assert sum(len(text.split()) > 12 for text in long) > len(long) / 2


def test_questions_of_many_passages_ask_for_all_that_mention_or_link_to_something(guides: CorpusGraph) -> None:
    shares = {"single": 0, "long": 0, "pair": 0, "reworded": 0}
    drafts = draft_questions(guides, 40, shares=shares)
    assert {draft.kind for draft in drafts} == {"many"}
    asked = {tuple(draft.nodes): draft.text for draft in drafts}
    assert "dragon keeper" in asked[tuple(range(1, 16, 2))]
    assert "amber0 backup guide" in asked[tuple(range(16))]
    assert len(asked) == len(drafts)


def test_questions_of_a_chat_are_answered_by_replies() -> None:
    turns = [f"does anybody know which driver the zyxel{i} card needs on the new release?" for i in range(20)]
    replies = [f"try the package firmware{i} from the restricted repository, it worked for me" for i in range(20)]
    edges = torch.tensor([[number, number + 20] for number in range(20)])
    ids = [str(number) for number in range(40)]
    graph = CorpusGraph.from_edges(ids, turns + replies, edges, edge_type=REFERENCE)
    drafts = draft_questions(graph, 40, shares={"single": 0, "long": 0, "many": 0, "reworded": 0})
    asked = [draft for draft in drafts if draft.text.startswith("does anybody know")]
    assert asked
    assert all(draft.nodes == [draft.nodes[0], draft.nodes[0] + 20] for draft in asked)


def test_tables_of_a_schema_are_asked_for_although_a_few_passages_read_as_prose(dataset: Dataset) -> None:
    tables = [f"table orders{i} in database shop{i}: columns order id{i}, price{i}, customer{i}" for i in range(58)]
    texts = [*dataset.graph.texts[:2], *tables]
    schema = dataclasses.replace(dataset, graph=dataset.graph.with_passages(texts=texts), known_fingerprint=None)
    asked = {node for _, nodes in relevant(drafted_dataset(schema)).values() for node in nodes}
    assert len(asked & {*range(2, 60)}) > 50


def test_questions_of_scripts_without_spaces_are_clauses(dataset: Dataset) -> None:
    texts = ["".join(chr(0x4E00 + 20 * i + k) for k in range(12)) + "。ABC" for i in range(60)]
    graph = dataset.graph.with_passages(texts=texts, language="characters")
    drafted = relevant(drafted_dataset(dataclasses.replace(dataset, graph=graph, known_fingerprint=None)))
    assert drafted
    parts = [part for question, _ in drafted.values() for part in re.split("[ 和]", question)]
    assert all(any(part in text for text in texts) for part in parts)


def test_other_splits_stay(dataset: Dataset) -> None:
    drafted = drafted_dataset(dataset)
    assert drafted.drafted
    assert list(drafted.splits) == ["train", "val", "test"]
    assert drafted.fingerprint != dataset.fingerprint
    before, after = (
        [(d.query_ids[query], node) for query, node in zip(d.split("test").query, d.split("test").node, strict=True)]
        for d in (dataset, drafted)
    )
    assert before == after
    assert {query for query in drafted.query_ids if query.startswith("q")} == {query for query, _ in before}
    num_val = len(drafted.split("val").queries)
    assert num_val == (num_val + len(drafted.split("train").queries)) // 10


@pytest.mark.parametrize(
    ("texts", "count", "message"),
    [
        (["of the", "a"], 5, "data set 'small' must have passages with words to draft questions from"),
        (["some words", "other words"], 0, "`count` must be a positive integer, got 0"),
    ],
)
def test_refused(texts: list[str], count: int, message: str) -> None:
    graph = CorpusGraph.from_edges(["a", "b"], texts, torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match=message):
        drafted_dataset(Dataset("small", graph, [], [], {}), count)


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
    assert read_drafted(file, NUMBERS) == [("q", [1, 0], "")]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"triple": 1}, "`shares` must be one of .*got 'triple'"),
        ({"many": -1}, "`shares\\['many'\\]` must"),
        ({"reworded": 2}, "`reworded` must"),
        (dict.fromkeys(("single", "long", "pair", "many"), 0), "`shares` must contain a positive weight"),
    ],
)
def test_shares_refused(guides: CorpusGraph, shares: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draft_questions(guides, 5, shares=shares)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": " ", "relevant": ["a"]}, "d.jsonl, line 1: expected `text`: String should match"),
        ({"text": "q", "relevant": []}, "d.jsonl, line 1: expected `relevant`: List should have at least 1 item"),
        ({"text": "q", "relevant": "a"}, "d.jsonl, line 1: expected `relevant`: Input should be a valid list"),
        ({"text": "q", "relevant": ["c"]}, "d.jsonl, line 1: expected ids of the corpus as `relevant`, got 'c'"),
        ({"text": "q", "relevant": ["left out"]}, "d.jsonl: expected a question about documents of the corpus"),
    ],
)
def test_file_refused(tmp_path, row, message):
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
