from pathlib import Path

import pytest
import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.reranking import run_reranker
from graphrerank.evaluation.run_files import read_run_file, write_runs
from graphrerank.evaluation.systems import RankedDataset, System, base_ranking

QUERIES = torch.arange(3)


@pytest.fixture
def written(prepared: PreparedDataset, tmp_path: Path) -> tuple[DatasetResult, Path]:
    row = run_reranker(prepared, QUERIES, System("retriever", base_ranking))
    plan = EvaluationPlan(["R@10", "nDCG@10"], resamples=10)
    study = measure_systems(RankedDataset(prepared.dataset, "val", QUERIES, [row]), plan)
    write_runs(tmp_path, study)
    return study, tmp_path / "toy.retriever.trec"


def test_trec_runs_against_ir_measures(written: tuple[DatasetResult, Path]) -> None:
    import ir_measures

    study, path = written
    run = list(ir_measures.read_trec_run(str(path)))
    assert len(run) == 4 + 3 + 4
    qrels = [
        ir_measures.Qrel(query, node, 1) for query, nodes in {"x": "ab", "y": "de", "z": "cf"}.items() for node in nodes
    ]
    theirs = ir_measures.calc_aggregate([ir_measures.R @ 10, ir_measures.nDCG @ 10], qrels, run)
    ours = study.systems["retriever"].means
    assert abs(theirs[ir_measures.R @ 10] - ours["R@10"]) < 1e-9
    assert abs(theirs[ir_measures.nDCG @ 10] - ours["nDCG@10"]) < 1e-9


def test_scores_survive_the_run_file(written: tuple[DatasetResult, Path]) -> None:
    study, path = written
    scores = [float(line.split()[4]) for line in path.read_text().splitlines()]
    ranking = study.systems["retriever"].ranking
    assert ranking is not None
    assert torch.equal(torch.tensor(scores), ranking.scores[ranking.nodes >= 0])


def test_a_run_file_read_again_is_the_same_ranking(written: tuple[DatasetResult, Path], prepared) -> None:
    study, path = written
    ranking = study.systems["retriever"].ranking
    assert ranking is not None
    again = read_run_file(path, prepared.dataset, "val", QUERIES)
    assert torch.equal(again.nodes[:, :4], ranking.nodes)
    path.write_text("x Q0 a 1 1 t\n")
    with pytest.raises(ValueError, match="needed a candidate for at least one of the 2 queries judged of split 'val'"):
        read_run_file(path, prepared.dataset, "val", torch.tensor([1, 2]))
