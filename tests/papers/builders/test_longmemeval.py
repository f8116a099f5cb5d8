"""LongMemEval's form, made small: two histories share a session, and cut another one differently."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import build

SHARED = [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Noted."}]
FIRST: dict[str, Any] = {
    "question_id": "q1", "question_type": "single-session-user", "question": "What do I like?", "answer": "tea",
    "question_date": "2023/05/30", "haystack_session_ids": ["s1", "s2"], "haystack_dates": ["2023/05/01", "2023/05/02"],
    "haystack_sessions": [[SHARED[0] | {"has_answer": True}, SHARED[1]], [{"role": "user", "content": "Bye."}]],
}  # fmt: skip
SECOND = FIRST | {
    "question_id": "q2_abs", "haystack_sessions": [SHARED, [{"role": "user", "content": "Bye now."}]],
}  # fmt: skip


def test_turns_of_all_histories(tmp_path: Path) -> None:
    built = build(tmp_path, "longmemeval", {"longmemeval_s.json": [FIRST, SECOND, FIRST | {"question_id": "q3"}]})
    assert [doc["_id"] for doc in built.documents] == ["s1:0", "s1:1", "s2:0", "s2~2:0"]
    assert built.documents[0]["text"] == "user: I like tea."
    assert built.edges == [["s1:0", "s1:1", "next"]]
    assert built.judged("test") == {"q1": ["s1:0"], "q3": ["s1:0"]}
    assert [query["metadata"]["sessions"] for query in built.queries] == [["s1", "s2"], ["s1", "s2~2"], ["s1", "s2"]]
    assert built.card["dropped"] == {"judgement: the question has no answer in its history": 1}


def test_evidence_of_what_never_happened_is_a_split_of_its_own(tmp_path: Path) -> None:
    absent = FIRST | {"question_id": "q4_abs"}
    built = build(tmp_path, "longmemeval", {"longmemeval_s_cleaned.json": [FIRST, absent]})
    assert built.judged("test") == {"q1": ["s1:0"]}
    assert built.judged("abstention") == {"q4_abs": ["s1:0"]}


def test_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"longmemeval_s\.json, entry 0: needed a question of LongMemEval"):
        build(tmp_path, "longmemeval", {"longmemeval_s.json": [FIRST | {"haystack_session_ids": ["s1"]}]})
