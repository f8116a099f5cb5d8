import json

import pytest

from graphrerank_documents.draft_folder import draft_folder, parse_question

TEXTS = {"a": "The kingfisher dives into brooks", "b": "Brooks freeze in February", "c": "Flour and water"}


@pytest.fixture
def folder(tmp_path):
    rows = [{"_id": name, "text": text} for name, text in TEXTS.items()]
    (tmp_path / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "edges.tsv").write_text("a\tb\tcites\n")
    return tmp_path


def lines(folder):
    return [json.loads(line) for line in (folder / "drafted.jsonl").read_text().splitlines()]


def test_one_seed_drafts_one_file_and_few_passages_few_questions(folder):
    assert len(TEXTS) < draft_folder(folder, 5_000) == len(lines(folder)) <= 10 * len(TEXTS)
    assert draft_folder(folder, 30) == len(lines(folder)) > 0
    first = lines(folder)
    draft_folder(folder, 30)
    assert lines(folder) == first
    draft_folder(folder, 30, seed=1)
    assert lines(folder) != first
    (folder / "drafted.jsonl").unlink()
    (folder / "edges.tsv").unlink()
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "a of the"}\n')
    assert draft_folder(folder, 5) == 0
    assert not (folder / "drafted.jsonl").exists()


def test_what_the_model_gives_no_answer_to_is_left_out(folder, scripted_model):
    def reply(system, question):
        assert "nobody who misses one of them" in system
        return "none" if "Flour" in question else {"question": " Which  bird?"}

    model = scripted_model(reply)
    count = draft_folder(folder, 30, model=model, drafted_by="m")
    assert count == len(lines(folder)) > 0
    asked = [question for _, question in model.asked]
    assert any(f"- {TEXTS['a']}\n\n- {TEXTS['b']}" in question for question in asked)
    without_answer = sum("Flour" in question for question in asked)
    assert len(asked) == count + without_answer
    assert without_answer > 0 == without_answer % 3  # three tries
    assert {(row["text"], row["drafted_by"]) for row in lines(folder)} == {("Which bird?", "m")}
    assert all("c" not in row["relevant"] for row in lines(folder))
    with pytest.raises(ValueError, match="the language model m returned no valid question"):
        draft_folder(folder, 5, model=scripted_model(lambda system, question: "none"), drafted_by="m")


@pytest.mark.parametrize("bad", ["[]", '{"question": " "}', '{"question": 3}', '{"question": "a", "more": 1}'])
def test_answers_of_another_form_are_refused(bad):
    with pytest.raises(ValueError, match="the answer must be"):
        parse_question(bad)
