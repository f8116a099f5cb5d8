"""LoCoMo's and LongMemEval's files, made small."""

from pathlib import Path
from typing import Any

from tests.support.raw import build

CONVERSATION: dict[str, Any] = {
    "speaker_a": "Ann", "speaker_b": "Bob",
    "session_1_date_time": "1 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Ann", "dia_id": "D1:1", "text": "Hi!"},
        {"speaker": "Bob", "dia_id": "D1:2", "text": "Look", "img_url": ["u"], "blip_caption": "a photo of a dog"},
    ],
    "session_2_date_time": "2 pm on 9 May, 2023",
    "session_2": [{"speaker": "Bob", "dia_id": "D2:1", "text": "Back."},
                  {"speaker": "Bob", "dia_id": "D2:2", "text": ""}],
}  # fmt: skip
LOCOMO = {
    "sample_id": "conv-1", "conversation": CONVERSATION, "event_summary": {},
    "qa": [
        {"question": "Who has a dog?", "answer": "Bob", "evidence": ["D1:2; D2:1"], "category": 1},
        {"question": "When?", "answer": 2023, "evidence": ["D1:01", "D9:1", "D", "D:1:2"], "category": 2},
        {"question": "Who has a cat?", "adversarial_answer": "Bob", "evidence": ["D1:2"], "category": 5},
        {"question": "Why?", "answer": "?", "evidence": [], "category": 3},
    ],
}  # fmt: skip


def test_locomos_turns_edges_and_evidence(tmp_path: Path) -> None:
    built = build(tmp_path, "locomo", {"locomo10.json": [LOCOMO]})
    second = built.documents[1]
    assert (second["_id"], second["title"]) == ("conv-1:D1:2", "1 pm on 8 May, 2023")
    assert second["text"] == "Bob: Look [shares a photo of a dog]"
    assert second["metadata"] == {
        "doc_id": "conv-1:session_1", "chunk_id": 1, "speaker": "Bob", "conversation": "conv-1",
        "date": "1 pm on 8 May, 2023",
    }  # fmt: skip
    assert built.edges == [
        ["conv-1:D1:1", "conv-1:D1:2", "next"],
        ["conv-1:D1:2", "conv-1:D2:1", "same_speaker"],  # that of the empty turn is dropped with it
    ]
    assert built.judged("test") == {
        "conv-1:q0": ["conv-1:D1:2", "conv-1:D2:1"], "conv-1:q1": ["conv-1:D1:1"],
    }  # fmt: skip
    assert built.judged("adversarial") == {"conv-1:q2": ["conv-1:D1:2"]}
    assert [(record["kind"], record["id"], record["detail"]) for record in built.dropped] == [
        ("judgement", "conv-1:q1", "D9:1"), ("judgement", "conv-1:q1", "D"),
        ("judgement", "conv-1:q1", "D:1:2"), ("judgement", "conv-1:q3", ""),
        ("document", "conv-1:D2:2", ""),
    ]  # fmt: skip


# two histories share a session, and cut another one differently
SHARED = [{"role": "user", "content": "I like tea."}, {"role": "assistant", "content": "Noted."}]
FIRST: dict[str, Any] = {
    "question_id": "q1", "question_type": "single-session-user", "question": "What do I like?", "answer": "tea",
    "question_date": "2023/05/30", "haystack_session_ids": ["s1", "s2"], "haystack_dates": ["2023/05/01", "2023/05/02"],
    "haystack_sessions": [[SHARED[0] | {"has_answer": True}, SHARED[1]], [{"role": "user", "content": "Bye."}]],
}  # fmt: skip
SECOND = FIRST | {
    "question_id": "q2_abs", "haystack_sessions": [SHARED, [{"role": "user", "content": "Bye now."}]],
}  # fmt: skip


def test_longmemevals_turns_of_all_histories(tmp_path: Path) -> None:
    built = build(tmp_path, "longmemeval", {"longmemeval_s.json": [FIRST, SECOND, FIRST | {"question_id": "q3"}]})
    assert [doc["_id"] for doc in built.documents] == ["s1:0", "s1:1", "s2:0", "s2~2:0"]
    assert built.documents[0]["text"] == "user: I like tea."
    assert built.edges == [["s1:0", "s1:1", "next"]]
    assert built.judged("test") == {"q1": ["s1:0"], "q3": ["s1:0"]}
    assert [query["metadata"]["sessions"] for query in built.queries] == [["s1", "s2"], ["s1", "s2~2"], ["s1", "s2"]]
    assert built.card["dropped"] == {"judgement: the question has no answer in its history": 1}
    absent = FIRST | {"question_id": "q4_abs"}  # evidence of what never happened
    built = build(tmp_path / "absent", "longmemeval", {"longmemeval_s_cleaned.json": [FIRST, absent]})
    assert built.judged("test") == {"q1": ["s1:0"]}
    assert built.judged("abstention") == {"q4_abs": ["s1:0"]}
