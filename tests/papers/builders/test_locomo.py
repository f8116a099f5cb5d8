"""A conversation of LoCoMo, made small."""

from pathlib import Path
from typing import Any

import pytest

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
RECORD = {
    "sample_id": "conv-1", "conversation": CONVERSATION, "event_summary": {},
    "qa": [
        {"question": "Who has a dog?", "answer": "Bob", "evidence": ["D1:2; D2:1"], "category": 1},
        {"question": "When?", "answer": 2023, "evidence": ["D1:01", "D9:1", "D", "D:1:2"], "category": 2},
        {"question": "Who has a cat?", "adversarial_answer": "Bob", "evidence": ["D1:2"], "category": 5},
        {"question": "Why?", "answer": "?", "evidence": [], "category": 3},
    ],
}  # fmt: skip


def test_turns_edges_and_evidence(tmp_path: Path) -> None:
    built = build(tmp_path, "locomo", {"locomo10.json": [RECORD]})
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
    assert [(each["kind"], each["id"], each["detail"]) for each in built.dropped] == [
        ("judgement", "conv-1:q1", "D9:1"), ("judgement", "conv-1:q1", "D"),
        ("judgement", "conv-1:q1", "D:1:2"), ("judgement", "conv-1:q3", ""),
        ("document", "conv-1:D2:2", ""),
    ]  # fmt: skip


def test_another_form_is_refused(tmp_path: Path) -> None:
    broken = RECORD | {"conversation": {"session_1": [{"speaker": "Ann"}]}}
    with pytest.raises(ValueError, match=r"locomo10\.json, entry 0: needed a conversation of LoCoMo"):
        build(tmp_path, "locomo", {"locomo10.json": [broken]})
