import io
import sys

import pytest
import torch

from graphrerank.caching import BlobStore, fill, hash_text
from graphrerank.progress import advance, advance_to, parts_done, progress_bar


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return made


def test_one_bar_for_work_within_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with progress_bar("whole", 10):
        advance(3)
        with progress_bar("a part", 4):
            advance(2)
            assert parts_done() == 5
        advance_to(4)  # is further already
        assert parts_done() == 5
        advance_to(10)
    assert parts_done() == 0
    shown = terminal.getvalue()
    assert "whole" in shown
    assert "10/10" in shown
    assert "a part" not in shown


def test_nothing_is_shown_without_a_bar_or_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    advance(3)
    assert parts_done() == 0
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with progress_bar("quiet", 2):
        advance(1)
    assert file.getvalue() == ""


def test_a_cache_counts_what_it_computes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether what computes advances the bar or not."""
    terminal = open_terminal(monkeypatch)
    texts = [str(number) for number in range(25)]
    seen = []

    def compute(items: list[str]) -> list[bytes]:
        if len(seen) == 1:
            advance(len(items))  # the second shard counts itself
        seen.append(parts_done())
        return [item.encode() for item in items]

    keys = list(map(hash_text, texts))
    fill(BlobStore(None, "texts"), keys, texts, compute, shard_size=10, label="texts")
    assert seen == [0, 20, 20]
    assert "25/25" in terminal.getvalue()


def test_batches_of_an_encoder_are_those_of_the_model() -> None:
    """Against one call of the model's own batches, and in the order of the texts."""
    from graphrerank.data.encoder import SentenceTransformerEncoder

    calls: list[list[str]] = []

    class Model:
        def encode(self, texts: list[str], **settings: object) -> torch.Tensor:
            calls.append(texts)
            return torch.tensor([[float(len(text)), 1.0] for text in texts])

    encoder = SentenceTransformerEncoder("any", batch_size=3)
    encoder.__dict__["_loaded"] = Model()
    texts = ["a" * length for length in (2, 9, 4, 7, 1, 9, 3)]
    vectors = encoder.encode(texts)
    assert [[len(text) for text in batch] for batch in calls] == [[9, 9, 7], [4, 3, 2], [1]]
    torch.testing.assert_close(vectors[:, 0] / vectors[:, 1], torch.tensor([2.0, 9, 4, 7, 1, 9, 3]))
