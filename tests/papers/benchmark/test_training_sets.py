"""What a checkpoint was trained on, by manifests."""

from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import DataEntry
from graphrerank_papers.benchmark.training_sets import has_seen, training_sets


def test_of_the_checkpoints_that_ship() -> None:
    base, attack = load_primary("base").reranker, load_primary("attack").reranker
    assert training_sets(attack) == ["attack"]
    assert set(training_sets(base)) == {
        "bird_train", "spider", "2wikimultihopqa_train", "hotpotqa", "scifact", "nfcorpus", "attack", "attack_paths",
    }  # fmt: skip
    assert has_seen(base, ["2wikimultihopqa", "2wikimultihopqa_train"], "")
    assert not has_seen(base, ["musique"], "")
    assert not has_seen(attack, ["2wikimultihopqa", "2wikimultihopqa_train"], "")
    assert has_seen(attack, ["attack under another name"], attack.data.fingerprint)


def test_folders_are_named_by_their_last_part() -> None:
    attack = load_primary("attack").reranker
    folder = DataEntry(choice="folder", arguments={"path": "/data/mine"}, fingerprint="0")
    other = DataEntry(arguments={"data": "folder", "path": "/data/musique"}, fingerprint="1")
    mix = {"second": other, "spider": DataEntry(fingerprint="2")}
    manifest = attack.model_copy(update={"data": folder, "mix": mix})
    assert training_sets(manifest) == ["mine", "musique", "spider"]
    assert has_seen(manifest, ["musique"], "")
