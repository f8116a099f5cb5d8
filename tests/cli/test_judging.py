import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from omegaconf import open_dict

from graphrerank.cli import schema
from graphrerank.cli.jobs import run_job
from graphrerank.cli.named_systems import short_names
from graphrerank.cli.session import Session
from graphrerank.evaluation.study import Study, read_study
from graphrerank.models.checkpoint import PRETRAINED
from tests.support import ROOT

WORDS = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet", "bread", "castle", "ice", "sand"]
QUERIES = 6


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve passages in a ring with a hub, six queries of one or two relevant passages, three of another split."""
    folder = tmp_path_factory.mktemp("data") / "ring"
    (folder / "qrels").mkdir(parents=True)
    passages = [{"_id": f"p{i}", "title": word, "text": f"A text about {word}."} for i, word in enumerate(WORDS)]
    queries = [{"_id": f"q{i}", "text": f"What is a {WORDS[i]}?", "metadata": {"answer": WORDS[i]}} for i in range(9)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    edges = [(i, (i + 1) % 12) for i in range(12)] + [(0, 5), (0, 7)]
    (folder / "edges.tsv").write_text("".join(f"p{a}\tp{b}\tnext\n" for a, b in edges))
    header = "query-id\tcorpus-id\tscore\n"
    test = [f"q{i}\tp{i}\t1\n" + (f"q{i}\tp{i + 1}\t1\n" if i % 2 else "") for i in range(QUERIES)]
    (folder / "qrels" / "test.tsv").write_text(header + "".join(test))
    (folder / "qrels" / "val.tsv").write_text(header + "".join(f"q{i}\tp{i}\t1\n" for i in range(QUERIES, 9)))
    return folder


@pytest.fixture(scope="module")
def mine(ring: Path) -> Path:
    """A run of somebody else's, which has nothing for the last query, and ties."""
    path = ring.parent / "ring.mine.trec"
    lines = [f"q{i} Q0 p{j} 1 {1 if j == i else 0.5} x\n" for i in range(QUERIES - 1) for j in range(i + 2)]
    path.write_text("".join(lines))
    return path


Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, cache: Path) -> Iterator[Run]:
    """Do what ``python evaluate.py`` does, in this process."""
    schema.register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):

        def evaluate_here(*overrides: str, folder: str = "out") -> Path:
            every = [*overrides, f"paths.run_dir={tmp_path / folder}", f"paths.cache={cache}", "resamples=200"]
            cfg = compose("evaluate", overrides=every, return_hydra_config=True)
            HydraConfig.instance().set_config(cfg)
            with open_dict(cfg):
                del cfg["hydra"]
            written_to = run_job(cfg, schema.EvaluateConfig, Session)
            assert written_to is not None
            return written_to

        yield evaluate_here


def written(folder: Path) -> tuple[Study, dict[str, Any], str]:
    return read_study(folder), json.loads((folder / "metrics.json").read_text()), (folder / "report.md").read_text()


def test_any_systems_on_the_same_queries(run: Run, ring: Path, mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(
        f"datasets=[{ring}]", f"systems=[vector_search,{mine}]", "checkpoint=[attack,base]",
        "measures=[nDCG@10,PR@2,R_cap@1,TR,Coverage@2,AP@10]",
    )  # fmt: skip
    assert capsys.readouterr().out.splitlines()[-1] == str(folder)
    whole, metrics, report = written(folder)
    study = whole.datasets["ring"]
    assert list(study.systems) == ["base_ranking", "ppr", "gcs", "vector_search", "ring.mine", "attack", "base"]
    assert [one.kind for one in study.systems.values()] == [
        "operator", "operator", "operator", "pipeline", "run", "checkpoint", "checkpoint",
    ]  # fmt: skip
    assert study.measures == ["nDCG@10", "PR@2", "R_cap@1", "TR", "Coverage@2", "AP@10"]
    assert list(study.query_ids) == [f"q{i}" for i in range(QUERIES)]
    means = {name: one.means for name, one in study.systems.items()}
    assert means["base"]["Coverage@2"] >= means["attack"]["Coverage@2"] > 0
    assert means["vector_search"] == means["base_ranking"]  # the same retriever, so the same candidates
    foreign = study.systems["ring.mine"]
    assert (foreign.missing, foreign.cost) == (("q5",), None)
    assert foreign.means["R_cap@1"] == pytest.approx(5 / 6)
    assert foreign.tied_share == pytest.approx(4 / 6)
    assert "ring.mine ranks nothing for 1 queries, which count as 0: q5" in report
    assert {test.baseline for test in study.tests} == set(study.systems) - {"base"}
    assert {(one.system, one.edges) for one in study.counterfactuals} == {
        (name, edges) for name in ("ppr", "gcs", "attack", "base") for edges in ("shuffled", "removed")
    }
    removed = {one.system: one.mean for one in study.counterfactuals if one.edges == "removed"}
    assert removed["gcs"] == pytest.approx(means["base_ranking"]["nDCG@10"])
    cost = study.systems["base"].cost
    assert cost is not None
    assert list(cost.ms) == ["retrieve", "graph", "rerank", "total"]
    assert metrics["datasets"]["ring"]["systems"]["base"]["nDCG@10"] == means["base"]["nDCG@10"]
    assert metrics["datasets"]["ring"]["systems"]["ring.mine"]["missing"] == 1
    assert {path.name for path in (folder / "runs").iterdir()} == {f"ring.{name}.trec" for name in study.systems}
    for title in ("Tests", "Cost", "Groups of queries", "Hubs", "Other edges", "Queries"):
        assert f"### {title}" in report


def test_seeds_and_several_data_sets(run: Run, ring: Path, mine: Path, tmp_path: Path) -> None:
    second = ring.parent / "second"
    if not second.exists():
        shutil.copytree(ring, second)
        (ring.parent / "second.mine.trec").write_text(mine.read_text())
    for seed in (1, 2):
        shutil.copytree(PRETRAINED / "base", tmp_path / f"seed{seed}")
        manifest = json.loads((tmp_path / f"seed{seed}" / "manifest.json").read_text())
        del manifest["artifact"]  # whose hashes would no longer be right
        manifest["config"]["seed"] = seed
        (tmp_path / f"seed{seed}" / "manifest.json").write_text(json.dumps(manifest))
    folder = run(
        f"datasets=[{ring},{second}]", f"systems=['{mine.parent}/{{dataset}}.mine.trec']",
        f"checkpoint=[{tmp_path / 'seed1'},{tmp_path / 'seed2'}]", "counterfactuals=[]",
    )  # fmt: skip
    whole, metrics, report = written(folder)
    assert list(whole.datasets) == ["ring", "second"]
    spread = whole.datasets["ring"].seed_spreads[0]
    assert (spread.systems, spread.seeds, spread.std) == (("seed1", "seed2"), (1, 2), 0.0)  # the same weights
    assert {one.baseline for one in whole.across} == {"base_ranking", "ppr", "gcs", "mine", "seed1"}
    twin = next(one for one in whole.across if one.baseline == "seed1")
    assert (twin.datasets, twin.num_replicated, twin.difference, twin.p_combined) == (("ring", "second"), 0, 0.0, 1.0)
    assert len(metrics["across"]) == len(whole.across)
    assert "## Over all data sets" in report
    assert "### Seeds" in report


def test_pipelines_on_other_edges(run: Run, ring: Path) -> None:
    folder = run(
        f"datasets=[{ring}]", "systems=[vector_search,hipporag2_ppr]", "counterfactual_pipelines=[hipporag2_ppr]"
    )
    study = read_study(folder).datasets["ring"]
    found = {one.edges: one for one in study.counterfactuals}
    assert list(found) == ["shuffled", "removed"]
    assert found["removed"].mean == pytest.approx(study.systems["vector_search"].means["nDCG@10"])  # nothing flows
    assert found["shuffled"].share_changed > 0
    with pytest.raises(ValueError, match=r"`counterfactual_pipelines` must be of `systems`, got \['gar'\]"):
        run(f"datasets=[{ring}]", "systems=[vector_search]", "counterfactual_pipelines=[gar]")


def test_run_files_alone_need_no_encoder_and_no_retriever(run: Run, ring: Path, mine: Path) -> None:
    other = mine.parent / "other.txt"
    other.write_text("".join(f"q{i} Q0 p{i} 1 1 x\n" for i in range(QUERIES)))
    template = str(mine).replace("ring.mine", "{dataset}.mine")
    folder = run(f"datasets=[{ring}]", f"systems=['{template}',{other}]", "ties=trec", "num_queries=4")
    study = read_study(folder).datasets["ring"]
    assert list(study.systems) == ["mine", "other"]
    assert len(study.query_ids) == 4
    assert (study.candidates, study.ceiling, study.counterfactuals) == (None, None, ())
    assert study.systems["mine"].ranking is None
    assert "as trec_eval does" in (folder / "report.md").read_text()
    again = run(
        f"datasets=[{ring}]", f"systems=[{other}]", f"checkpoint={folder / 'runs' / 'ring.mine.trec'}", folder="b"
    )
    assert read_study(again).datasets["ring"].primary == "ring.mine"


def test_one_checkpoint_leaves_a_study_too(run: Run, ring: Path) -> None:
    folder = run(f"datasets=[{ring}]", "checkpoint=base", "counterfactuals=[]", "split=val")
    whole, metrics, report = written(folder)
    study = whole.datasets["ring"]
    assert list(study.systems) == ["base_ranking", "ppr", "gcs", "gatv2"]
    old = metrics["datasets"]["ring"]["systems"]
    for name, system in study.systems.items():
        assert system.means["nDCG@10"] == old[name]["nDCG@10"]
    assert study.counterfactuals == ()
    assert study.ceiling == metrics["datasets"]["ring"]["ceiling"]
    assert "## ring val: 3 queries" in report


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q0 Q0 p99 1 1 x\n", r"line 1: needed a document of the corpus, found 'p99'"),
        ("q0 Q0 p1 1 1 x\nother Q0 p2 1 1 x\n", r"line 2: needed a query of the data set .*, found 'other'"),
        ("q0 Q0 p1 1 nan x\n", r"line 1: needed a finite number as score, found 'nan'"),
        ("q0 Q0 p1 1 2 x\nq0 Q0 p1 2 1 x\n", r"line 2: needed each document once per query, found 'p1 a second time"),
        ("q7 Q0 p1 1 1 x\n", r"needed a candidate for at least one of the 6 queries judged of split 'test' of 'ring'"),
        ("", r"needed a candidate for at least one of 9 queries, found none"),
    ],
)
def test_run_files_that_do_not_fit_are_refused(lines: str, message: str, run: Run, ring: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.trec").write_text(lines)
    with pytest.raises(ValueError, match=rf"bad\.trec.*{message}"):
        run(f"datasets=[{ring}]", f"systems=[{tmp_path / 'bad.trec'}]")


def test_empty_judgements_are_refused(run: Run, ring: Path, mine: Path, tmp_path: Path) -> None:
    for name in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / name).write_text((ring / name).read_text())
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    with pytest.raises(
        InstantiationException, match=r"test\.tsv: needed a score above 0 in at least one row, found none"
    ):
        run(f"datasets=[{tmp_path}]", f"systems=[{mine}]")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["systems=[a.trec,a.trec]"], "must name one system or more, and none twice"),
        (["systems=[nothing]"], "must be a run folder, a .ckpt file, an artifact or one of the shipped names"),
        (["systems=[missing.trec]"], r"missing\.trec: no such file"),
        (["systems=[a.trec]", "datasets=[attack,spider]"], r"a\.trec is of one data set, `datasets` names 2; .*{dat"),
        (["systems=[vector_search]", "pipeline=gar"], "leave `pipeline` and `pipelines` out"),
        (["systems=[a.trec]", "measures=[Recoll@3]"], "got 'Recoll@3'"),
        (["systems=[a.trec]", "tested=[R@7]"], "`tested` must name one or more of `measures`"),
        (["systems=[a.trec]", "counterfactuals=[turned]"], r"`counterfactuals` must be of .* got \['turned'\]"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(overrides: list[str], message: str, run: Run, ring: Path) -> None:
    data = [] if any(part.startswith("datasets") for part in overrides) else [f"datasets=[{ring}]"]
    with pytest.raises(ValueError, match=message):
        run(*data, *overrides)


def test_short_names() -> None:
    assert short_names(["runs/1/gatv2", "runs/2/gatv2"]) == ["1-gatv2", "2-gatv2"]
    assert short_names(["a/x.trec", "b/x.trec.gz", "re2"]) == ["a-x", "b-x", "re2"]
    with pytest.raises(ValueError, match="must have different names"):
        short_names(["a/x.trec", "a/x.run"])
