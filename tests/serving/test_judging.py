"""The page for judging: files of the folder, routes and guards."""

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.pooling import PooledPassage
from graphrerank.serving.judging.app import PAGE_FILES, create_judging_app
from graphrerank.serving.judging.store import JudgementStore
from tests.support.folders import write_dataset

IDS = ["a", "b", "c"]
TOKEN = {"x-judge-token": "t"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = [{"_id": name, "title": name.upper(), "text": f"about {name}"} for name in IDS]
    return write_dataset(tmp_path / "mine", corpus=corpus)


@pytest.fixture
def store(folder: Path) -> JudgementStore:
    return JudgementStore(folder, IDS)


class Search:
    """Finds all passages, whatever the question."""

    def __call__(self, text: str) -> list[PooledPassage]:
        return self.passages(IDS)

    def passages(self, ids: Sequence[str]) -> list[PooledPassage]:
        return [PooledPassage(name, name.upper(), f"about {name} <b>") for name in ids]


@pytest.fixture
def client(store: JudgementStore) -> TestClient:
    app = create_judging_app(Search(), store, port=8001, name="mine", token="t")
    return TestClient(app, base_url="http://localhost:8001", raise_server_exceptions=False)


def test_the_terminal_of_the_person_who_judges_shows_no_requests(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert client.get("/state").status_code == 200
    assert "request" not in [record.getMessage() for record in caplog.records if record.name == "graphrerank.serving"]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_saved_questions_are_a_data_set(folder: Path, store: JudgementStore) -> None:
    assert store.save("  which\n one? ", ["b"], ["a", "b"]).query_id == "q1"
    assert store.save("and this?", ["a", "c"], ["a", "c"]).query_id == "q2"
    assert lines(folder / "queries.jsonl") == [
        '{"_id": "q1", "text": "which one?"}', '{"_id": "q2", "text": "and this?"}',
    ]  # fmt: skip
    assert lines(folder / "qrels" / "test.tsv") == [
        "query-id\tcorpus-id\tscore", "q1\ta\t0", "q1\tb\t1", "q2\ta\t1", "q2\tc\t1",
    ]  # fmt: skip
    dataset = Dataset.from_folder(folder)
    assert dataset.query_texts == ["which one?", "and this?"]
    assert dataset.split("test").node.tolist() == [1, 0, 2]


def test_another_store_goes_on_where_the_first_stopped(folder: Path, store: JudgementStore) -> None:
    store.save("one?", ["a"], ["a", "b"])
    again = JudgementStore(folder, IDS)
    assert [(question.text, question.relevant) for question in again.questions()] == [("one?", ["a"])]
    assert again.save("two?", ["b"], ["b"]).query_id == "q2"


def test_a_question_is_changed_in_place(folder: Path, store: JudgementStore) -> None:
    store.save("one?", ["a"], ["a", "b"])
    store.save("two?", ["a"], ["a"])
    assert store.save("first?", ["b"], ["a", "b"], query_id="q1").query_id == "q1"
    assert store.save("two?", ["c"], ["c"]).query_id == "q2"  # the same text is the same question
    assert [(question.text, question.relevant) for question in store.questions()] == [
        ("first?", ["b"]),
        ("two?", ["c"]),
    ]


def test_what_others_wrote_is_kept(folder: Path) -> None:
    (folder / "queries.jsonl").write_text('{"_id": "mine", "text": "old?", "metadata": {"answer": "x"}}\n\n')
    write_dataset(folder, val=[("mine", "a")], test=[])
    (folder / "qrels" / "test.tsv").unlink()
    store = JudgementStore(folder, IDS)
    assert [question.relevant for question in store.questions()] == [[]]
    store.save("new?", ["a"], ["a"])
    first, second = map(json.loads, lines(folder / "queries.jsonl"))
    assert first == {"_id": "mine", "text": "old?", "metadata": {"answer": "x"}}
    assert second == {"_id": "q1", "text": "new?"}
    assert lines(folder / "qrels" / "val.tsv")[1:] == ["mine\ta\t1"]
    with pytest.raises(ValueError, match="'mine' is judged in the split val, too"):
        store.remove("mine")


def test_the_last_question_leaves_no_files(folder: Path, store: JudgementStore) -> None:
    store.save("one?", ["a"], ["a"])
    store.remove("q1")
    assert not (folder / "queries.jsonl").exists()
    assert not (folder / "qrels" / "test.tsv").exists()
    assert Dataset.from_folder(folder).splits == {}
    with pytest.raises(ValueError, match="the question must exist, got the id 'q1'"):
        store.remove("q1")


def test_a_crash_leaves_whole_files(folder: Path, store: JudgementStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save("one?", ["a"], ["a"])
    before = (folder / "qrels" / "test.tsv").read_bytes()

    def full(*arguments: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        store.save("two?", ["b"], ["b"])
    monkeypatch.undo()
    assert (folder / "qrels" / "test.tsv").read_bytes() == before
    assert [question.text for question in JudgementStore(folder, IDS).questions()] == ["one?"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((" ", ["a"], ["a"]), "must have 1 to 2,000 characters, got 0"),
        (("x" * 2_001, ["a"], ["a"]), "got 2,001"),
        (("one?", [], ["a"]), "at least one passage must be relevant"),
        (("one?", ["z"], []), "ids of the corpus, got 'z'"),
        (("one?", ["a"], ["a\tb"]), "ids of the corpus"),
    ],
)
def test_what_cannot_be_judged_is_refused(store: JudgementStore, arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        store.save(*arguments)
    assert store.questions() == []


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("qrels/test.csv", "query-id,corpus-id,score\n", "judgements can only be added to qrels/test.tsv"),
        ("qrels/test.tsv", "q1 0 a 1\n", "line 1: expected the header query-id corpus-id score"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\n", "line 2: expected 3 columns"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\tyes\n", "line 2: expected a number as score"),
        ("test.tsv", "query-id\tcorpus-id\tscore\nq1\ta\t1\n", "judgements can only be added to qrels/test.tsv"),
        ("queries.jsonl", '{"text": "x"}\n', "line 1: expected `_id` and `text`"),
        ("queries/part.jsonl", "{}\n", "questions can only be added to queries.jsonl"),
    ],
)
def test_files_that_cannot_be_appended_to_are_named(folder: Path, file: str, content: str, message: str) -> None:
    (folder / "qrels").rmdir()
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        JudgementStore(folder, IDS)


def test_a_question_from_the_page_to_the_file(client: TestClient, folder: Path) -> None:
    assert client.get("/state").json() == {"name": "mine", "token": "t", "questions": []}
    found = client.post("/search", json={"text": "which?"}, headers=TOKEN).json()["passages"]
    assert found[0] == {"passage_id": "a", "title": "A", "text": "about a <b>"}
    body = {"text": "which?", "relevant": ["b"], "shown": IDS}
    saved = client.post("/questions", json=body, headers=TOKEN)
    assert saved.json() == {"query_id": "q1", "text": "which?", "relevant": ["b"]}
    assert client.get("/state").json()["questions"] == [saved.json()]
    assert [passage["passage_id"] for passage in client.get("/questions/q1").json()["passages"]] == IDS
    assert "q1\tb\t1" in lines(folder / "qrels" / "test.tsv")
    assert client.delete("/questions/q1", headers=TOKEN).status_code == 200
    assert client.get("/questions/q1").status_code == 404


@pytest.mark.parametrize("header", [{}, {"x-judge-token": "u"}, {"x-judge-token": "ü"}])
def test_nothing_is_changed_without_the_token(client: TestClient, folder: Path, header: dict[str, str]) -> None:
    encoded = {name: token.encode("latin-1") for name, token in header.items()}
    body = {"text": "which?", "relevant": ["b"], "shown": IDS}
    for answer in (
        client.post("/questions", json=body, headers=encoded),
        client.post("/search", json={"text": "which?"}, headers=encoded),
        client.delete("/questions/q1", headers=encoded),
    ):
        assert answer.status_code == 403
    assert not (folder / "queries.jsonl").exists()


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"host": "evil.example"}, "the header `host` must be a local name"),
        ({"origin": "http://evil.example"}, "this web page may not call the service"),
    ],
)
def test_other_web_pages_read_and_change_nothing(client: TestClient, headers: dict[str, str], message: str) -> None:
    for answer in (
        client.get("/state", headers=headers),
        client.post("/search", json={"text": "which?"}, headers={**TOKEN, **headers}),
    ):
        assert answer.status_code == 403
        assert message in answer.json()["message"]


@pytest.mark.parametrize(
    "body", ["{", "[]", {"text": ""}, {"text": "x" * 2_001}, {"text": "x", "relevant": "a", "shown": []}]
)
def test_invalid_requests_are_named(client: TestClient, body: object) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    answer = client.post("/questions", content=content, headers={**TOKEN, "content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["message"]


def test_user_errors_are_shown(client: TestClient) -> None:
    answer = client.post("/questions", json={"text": "x", "relevant": [], "shown": []}, headers=TOKEN)
    assert (answer.status_code, answer.json()["message"][:32]) == (422, "at least one passage must be rel")


def test_files_of_the_page_have_a_policy_and_read_no_html(client: TestClient) -> None:
    for path, name in PAGE_FILES.items():
        answer = client.get(path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        text = (files("graphrerank.serving.judging.page") / name).read_text(encoding="utf-8")
        assert answer.text == text
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
        assert not re.search(r"https?://", text)
