"""STaRK's files, made small, and a hostile pickle."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.files import zip_of
from tests.support.raw import build


def saved(tensor: torch.Tensor) -> bytes:
    stream = io.BytesIO()
    torch.save(tensor, stream)
    return stream.getvalue()


NODES = {
    0: {"id": 9, "type": "gene", "name": "PHYHIP",
        "details": {"summary": "A  gene.", "alias": ["X", "Y"], "none": None}},
    1: {"id": 8, "type": "drug", "name": "Aspirin", "details": {}},
    2: {"id": 7, "type": "drug", "name": ""},
}  # fmt: skip
BASE = {
    "processed/node_info.pkl": pickle.dumps(NODES),
    "processed/edge_type_dict.pkl": pickle.dumps({0: "ppi", 1: "drug target"}),
    "processed/edge_index.pt": saved(torch.tensor([[0, 1, 0, 1, 2], [1, 0, 1, 1, 0]])),
    "processed/edge_types.pt": saved(torch.tensor([1, 1, 0, 0, 1])),
}
FILES: dict[str, Any] = {
    "skb/prime/processed.zip": zip_of(BASE),
    "qa/prime/stark_qa/stark_qa.csv": 'id,query,answer_ids\n0,"Which, then?",[1]\n1,Who?,"[0, 2]"\n2,Left out?,[0]\n',
    "qa/prime/split/train.index": "0\n",
    "qa/prime/split/test.index": "1\n",
}


def test_entities_relations_and_answers(tmp_path: Path) -> None:
    built = build(tmp_path, "stark", FILES)
    first = built.documents[0]
    assert (first["_id"], first["title"]) == ("0", "PHYHIP")
    assert first["text"] == "type: gene; details: summary: A gene.; alias: X, Y"
    assert sorted(built.edges) == [["0", "1", "drug_target"], ["0", "1", "ppi"], ["0", "2", "drug_target"]]
    assert built.judged("train") == {"0": ["1"]}
    assert built.judged("test") == {"1": ["0", "2"]}
    assert built.card["notes"] == ["Splits whose files were not given: val."]
    kept = build(tmp_path / "kept", "stark", FILES, keep_types=["ppi"])
    assert kept.edges == [["0", "1", "ppi"]]


@pytest.mark.parametrize("protocol", [4, 5])
def test_what_pandas_leaves_in_a_table(tmp_path: Path, protocol: int) -> None:
    details = {"_version": 1, "taxon_id": np.int64(9606), "length": np.int64(330), "weight": np.float64(1.5),
               "half_life": np.float32("nan"), "summary": float("nan"), "coding": np.bool_(True)}  # fmt: skip
    nodes = {np.int64(0): NODES[0] | {"details": details}, 1: NODES[1], 2: NODES[2]}
    base = BASE | {"processed/node_info.pkl": pickle.dumps(nodes, protocol=protocol)}
    built = build(tmp_path, "stark", FILES | {"skb/prime/processed.zip": zip_of(base)})
    assert built.documents[0]["text"] == "type: gene; details: length: 330; weight: 1.5; coding: True"
    objects = pickle.dumps({0: np.array([{}], dtype=object)[:1]}, protocol=protocol)
    files = FILES | {"skb/prime/processed.zip": zip_of(BASE | {"processed/node_info.pkl": objects})}
    with pytest.raises(ValueError, match=r"node_info\.pkl: not in the format of STaRK"):
        build(tmp_path / "objects", "stark", files)


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("touched"),))


def test_a_pickle_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for member in ("processed/node_info.pkl", "processed/edge_index.pt"):
        files = FILES | {"skb/prime/processed.zip": zip_of(BASE | {member: pickle.dumps({0: Hostile()})})}
        with pytest.raises(ValueError, match=rf"processed\.zip: {member}: not in the format of STaRK"):
            build(tmp_path, "stark", files)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
