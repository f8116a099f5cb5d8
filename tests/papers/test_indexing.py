from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank.core import Queries
from graphrerank.pipelines.state import RetrievalState
from graphrerank_papers.indexing import Stages, load_record, save_record, with_listed
from tests.support.damage import flip_bit
from tests.support.encoders import HashEncoder


@dataclass(frozen=True)
class Part:
    names: Sequence[str]
    scores: Tensor


@dataclass(frozen=True)
class Whole:
    count: int
    share: float
    parts: Sequence[Part]
    lists: Sequence[Sequence[int]]
    part: Part


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    scores = torch.rand(2, 3)
    part = Part(["a", "ä"], scores.T)  # of the same memory
    record = (Whole(3, 0.1, [Part([], scores), part], [[1], []], part), scores[:0], 7)
    save_record(tmp_path / "x", record)
    whole, none, number = load_record(tmp_path / "x", tuple[Whole, Tensor, int])
    assert (whole.count, whole.share, whole.lists, none.shape, number) == (3, 0.1, [[1], []], (0, 3), 7)
    assert [part.names for part in (*whole.parts, whole.part)] == [[], ["a", "ä"], ["a", "ä"]]
    assert torch.equal(whole.part.scores, scores.T)
    assert torch.equal(whole.parts[0].scores, scores)


def test_other_files_are_refused(tmp_path: Path) -> None:
    part = Part(["a"], torch.zeros(1))
    save_record(tmp_path / "x", part)
    with pytest.raises(ValueError, match=r"x\.json: missing or damaged index .*; delete x\.safetensors and rebuild"):
        load_record(tmp_path / "x", Whole)
    (tmp_path / "x.safetensors").unlink()
    with pytest.raises(ValueError, match=r"x\.json: missing or damaged index .*x\.safetensors: damaged"):
        load_record(tmp_path / "x", Part)
    with pytest.raises(ValueError, match=r"y\.json: missing or damaged index"):
        load_record(tmp_path / "y", Part)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_flipped_bit_changes_no_stage(tmp_path: Path, suffix: str) -> None:
    stages, part = Stages(tmp_path), Part(["a"], torch.rand(9))
    stages.get("x", Part, lambda: part)
    flip_bit((tmp_path / "x").with_suffix(suffix), 0.2 if suffix == ".json" else 0.9)
    with pytest.warns(UserWarning, match=r"x\.json: missing or damaged index .*; the entry is computed again"):
        stages.get("x", Part, lambda: part)
    found = stages.get("x", Part, pytest.fail)
    assert (found.names, found.scores.tolist()) == (part.names, part.scores.tolist())


def test_texts_are_encoded_in_blocks_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank_papers.indexing.BLOCK_TEXTS", 2)
    encoder, texts = HashEncoder(), ["a", "b", "c"]
    vectors = Stages(tmp_path).encode(encoder, texts)
    assert torch.equal(vectors, encoder.encode(texts))
    encoder.asked.clear()
    assert torch.equal(Stages(tmp_path).encode(encoder, [*texts, "d"])[:3], vectors)
    assert encoder.asked == ["c", "d"]  # the block that is new
    assert Stages(tmp_path).encode(encoder, []).shape == (0, 0)


def test_rows_are_replaced_cut_and_kept() -> None:
    state = RetrievalState.start(Queries(["a", "b"], ["", ""]), torch.device("cpu"))
    state = state.with_ranking(torch.tensor([[4, 5], [6, -1]]), torch.tensor([[0.9, 0.8], [0.7, -torch.inf]]))
    found = with_listed(state, [[1, 2, 3, 0], []], budget=3)
    assert found.nodes.tolist() == [[1, 2, 3], [6, -1, -1]]
    torch.testing.assert_close(found.scores[0], torch.tensor([1.0, 1 / 2, 1 / 3]))
    torch.testing.assert_close(found.scores[1], torch.tensor([0.7, -torch.inf, -torch.inf]))
