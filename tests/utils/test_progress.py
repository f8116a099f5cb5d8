import io
import logging
import sys
from itertools import count

import pytest

from graphrerank.utils.caching import BlobStore, fill, hash_text
from graphrerank.utils.progress import advance, advance_to, parts_done, progress_bar, step


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


def test_a_step_advances_once_whatever_happens_inside() -> None:
    with progress_bar("whole", 10):
        with step(3):
            advance(2)
            advance_to(9)
            with step(4), progress_bar("a part", 4):
                advance(1)
            assert parts_done() == 0
        assert parts_done() == 3
        with pytest.raises(ValueError, match="broken"), step(5):
            raise ValueError("broken")
        advance(1)
        assert parts_done() == 4
    with step(3):  # without a bar
        pass


def test_nothing_is_shown_without_a_bar_or_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    advance(3)
    assert parts_done() == 0
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    ticks = count(step=100)
    with progress_bar("quiet", 2, clock=lambda: next(ticks)):  # the log is for those who listen
        advance(1)
    assert file.getvalue() == ""


def test_lines_without_a_terminal(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at the beginning if asked for, and then one every 20 seconds."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    now = [0.0]
    with caplog.at_level(logging.INFO), progress_bar("work", 100, announce=True, clock=lambda: now[0]):
        for _ in range(100):
            now[0] += 1
            advance(1)
    assert caplog.messages == ["work: 0 of 100 (0%)", *(
        f"work: {done} of 100 ({done}%), about {100 - done or 1} s left" for done in (20, 40, 60, 80, 100)
    )]  # fmt: skip
    caplog.clear()
    with caplog.at_level(logging.INFO), progress_bar("work", 100, clock=lambda: now[0]):
        advance(1)
    assert caplog.messages == []


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
