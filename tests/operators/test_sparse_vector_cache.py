from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphrerank.files import load_tensors, save_tensors
from graphrerank.operators import splade
from graphrerank.operators.splade import TENSORS, SparseVectorCache

TEXTS = ["alpha", "beta beta", "", "gamma gamma gamma", "delta", "alpha"]  # the empty text's vector is empty


class Letters:
    """Counts letters, keeps every text it was asked for, and stops for good after some."""

    def __init__(self, *, stop_after: int | None = None, width: int = 26) -> None:
        self.stop_after = stop_after
        self.width = width
        self.encoded: list[str] = []

    def __call__(self, texts: Sequence[str]) -> Tensor:
        if self.stop_after is not None and len(self.encoded) + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.encoded += texts
        counts = torch.zeros(len(texts), self.width)
        for row, text in enumerate(texts):
            for letter in text.replace(" ", ""):
                counts[row, (ord(letter) - ord("a")) % self.width] += 1
        return counts.to_sparse()


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def test_against_the_encoder_itself(tmp_path: Path) -> None:
    for texts in (TEXTS, TEXTS[::-1], TEXTS[2:3]):
        found = SparseVectorCache(tmp_path, Letters()).encode(texts)
        assert found.layout == torch.sparse_csr
        assert torch.equal(found.to_dense(), Letters()(texts).to_dense())


def test_nothing_is_encoded_twice_and_new_texts_alone(tmp_path: Path) -> None:
    encoder = Letters()
    SparseVectorCache(tmp_path, encoder).encode(TEXTS[:3])
    SparseVectorCache(tmp_path, encoder).encode(TEXTS)
    found = SparseVectorCache(tmp_path, encoder).encode(TEXTS)
    assert sorted(encoder.encoded) == sorted(set(TEXTS))
    assert len(shards(tmp_path)) == 2
    assert torch.equal(found.to_dense(), Letters()(TEXTS).to_dense())


def test_interrupted_run_goes_on_from_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade, "SHARD_TEXTS", 2)
    texts = [f"text {'x' * i}" for i in range(9)]
    stopped, resumed = Letters(stop_after=5), Letters()
    with pytest.raises(KeyboardInterrupt):
        SparseVectorCache(tmp_path, stopped).encode(texts)
    assert len(shards(tmp_path)) == 2
    found = SparseVectorCache(tmp_path, resumed).encode(texts)
    assert (stopped.encoded, resumed.encoded) == (texts[:4], texts[4:])
    assert torch.equal(found.to_dense(), Letters()(texts).to_dense())


@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_damaged_file_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    SparseVectorCache(tmp_path, Letters()).encode(TEXTS)
    (file,) = shards(tmp_path)
    content = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": content[:-5], "noise": b"\xff" * 99}[damage])
    with pytest.raises(ValueError, match=rf"{file.name}: damaged cache .*; delete this file and run again"):
        SparseVectorCache(tmp_path, Letters()).encode(TEXTS)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": torch.full((14,), torch.nan)},
        {"indices": torch.full((14,), 26)},
        {"indptr": torch.tensor([0, 9, 3, 14, 14, 14])},
        {"indptr": torch.tensor([0, 14])},
    ],
)
def test_file_with_unusable_rows_is_refused_by_name(tmp_path: Path, change: dict[str, Tensor]) -> None:
    SparseVectorCache(tmp_path, Letters()).encode(TEXTS)
    (file,) = shards(tmp_path)
    tensors = load_tensors(file, ("keys", *TENSORS))
    (name,) = change
    if name in ("weights", "indices"):
        change = {name: change[name][:1].expand(len(tensors[name])).to(tensors[name].dtype)}
    save_tensors(file, {**tensors, **change})
    with pytest.raises(
        ValueError, match=rf"{file.name} \(delete this file and run again\): needed 5 finite sparse rows"
    ):
        SparseVectorCache(tmp_path, Letters()).encode(TEXTS)


def test_vectors_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the sparse encoder's vectors: needed 1 finite sparse rows"):
        SparseVectorCache(tmp_path, lambda texts: Letters()(texts) * torch.inf).encode(TEXTS[:1])
    assert shards(tmp_path) == []


def test_vectors_of_two_widths_are_refused(tmp_path: Path) -> None:
    SparseVectorCache(tmp_path, Letters()).encode(["a"])
    with pytest.raises(ValueError, match=r"needed sparse vectors of one width, the cache holds some of \[20, 26\]"):
        SparseVectorCache(tmp_path, Letters(width=20)).encode(["b"])
