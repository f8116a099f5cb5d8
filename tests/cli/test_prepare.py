"""``graphrerank prepare DIR``, and what the folder is then good for."""

import json
from pathlib import Path

import pytest
import torch

from graphrerank.corpus_store.opening import open_corpus
from tests.cli.conftest import WORDS
from tests.support.commands import RunCommand
from tests.support.folders import write_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set of passages in a ring, and three queries."""
    return write_dataset(
        tmp_path / "ring",
        corpus=[{"_id": f"p{i}", "title": name, "text": f"A text about {name}."} for i, name in enumerate(WORDS[:10])],
        queries=[{"_id": f"q{i}", "text": f"What is a {WORDS[i]}?"} for i in range(3)],
        edges=[(f"p{i}", f"p{(i + 1) % 10}", "next") for i in range(10)],
        test=[(f"q{i}", f"p{j}") for i in range(3) for j in (i, i + 1)],
    )


def test_a_prepared_data_set_is_judged_as_the_data_set(
    run_command: RunCommand, small_encoder: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    plan = (*small_encoder, "data=folder", f"data.path={folder}", "vectors=float32")
    done = run_command("prepare", str(corpus), *plan)
    assert done.stdout.splitlines()[-1] == str(corpus)
    assert done.stdout.splitlines()[-2].startswith("10 passages, 0.0 MB")
    systems = []
    for name, data in (("here", folder), ("there", corpus)):
        arguments = ("checkpoint=base", "retriever=hybrid_expand", "retriever.top_k=8", "retriever.base_k=5")
        more = ("retriever.num_seeds=3", f"datasets=[{data}/]", f"hydra.run.dir={tmp_path / name}")
        done = run_command("evaluate.py", *arguments, *small_encoder, *more)
        (entry,) = json.loads((tmp_path / name / "metrics.json").read_text())["datasets"].values()
        systems.append({system: figures["nDCG@10"] for system, figures in entry["systems"].items()})
    assert systems[0] == systems[1]
    runs = [{path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.trec")} for name in ("here", "there")]
    assert runs[0]
    assert runs[0] == runs[1]


def test_a_corpus_folder_grows(run_command: RunCommand, folder: Path, tmp_path: Path) -> None:
    corpus, more = tmp_path / "corpus", tmp_path / "more"
    done = run_command("prepare", str(corpus), "data=folder", f"data.path={folder}", "encoder=none")
    more.mkdir()
    lines = [{"_id": "p4", "text": "A text about a zebra."}, {"_id": "new", "text": "A text about a gnu."}]
    (more / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (more / "edges.tsv").write_text("p1\tnew\tcites\nnew\tp4\tnext\n")
    (tmp_path / "gone.txt").write_text("p7\np8\n")
    changes = (f"add={more}", "replace=true", f"remove={tmp_path / 'gone.txt'}", "compact=true")
    done = run_command("prepare", str(corpus), *changes)
    assert done.stdout.splitlines() == ["2 added, 3 removed: 9 passages", str(corpus)]
    graph = open_corpus(corpus).graph
    assert list(graph.node_ids) == ["p0", "p1", "p2", "p3", "p5", "p6", "p9", "p4", "new"]
    assert sorted(graph.neighbours(torch.tensor([8]))[1].tolist()) == [1, 7]


def test_added_passages_are_joined_by_mentions_and_entities(
    run_command: RunCommand, folder: Path, tmp_path: Path
) -> None:
    corpus, more = tmp_path / "corpus", tmp_path / "more"
    data = ("data=folder", f"data.path={folder}", "data.edges=auto")
    (folder / "entities.jsonl").write_text(json.dumps({"_id": "p3", "entities": ["Nero"]}) + "\n")
    run_command("prepare", str(corpus), *data, "encoder=none")
    more.mkdir()
    lines = [{"_id": "new", "title": "gnu", "text": "The violin."}, {"_id": "last", "text": "A Gnu."}]
    (more / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (more / "entities.jsonl").write_text(json.dumps({"_id": "last", "entities": ["Nero"]}) + "\n")
    run_command("prepare", str(corpus), f"add={more}", "compact=true")
    graph = open_corpus(corpus).graph
    ids = graph.node_ids
    neighbours = [{ids[i] for i in graph.neighbours(torch.tensor([node]))[1].tolist()} for node in (10, 11)]
    assert neighbours == [{"p6", "last"}, {"new", "p3"}]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_workers_of_ray_prepare_the_same_folder(run_command: RunCommand, folder: Path, tmp_path: Path) -> None:
    data = ("data=folder", f"data.path={folder}", "encoder=none")
    run_command("prepare", str(tmp_path / "one"), *data)
    run_command("prepare", str(tmp_path / "ray"), *data, "engine=ray", "part_size=4")
    files = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("one", "ray")
    ]
    assert len(files[0]) > 10
    assert files[0] == files[1]


def test_an_engine_does_not_change_a_folder(run_command: RunCommand, tmp_path: Path) -> None:
    done = run_command("prepare", str(tmp_path / "corpus"), "compact=true", "engine=ray", status=1)
    assert "`engine` must be null for a change of a corpus folder (compact=...)" in done.stderr
