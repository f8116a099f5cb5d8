"""Legends of tables: what rows and columns mean."""

from dataclasses import replace

from graphrerank.evaluation.legend import explained_name, legend
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.report import notes_of, title_of
from graphrerank.evaluation.result import EvaluationResult


def test_every_kind_of_entry_is_explained_once(dataset: DatasetResult) -> None:
    lines = legend(replace(dataset, ceiling=0.8), ["PR@5", "PR@10", "PR@5/multi", "nDCG@10"])
    names = [line.partition(":")[0] for line in lines]
    assert names == ["retriever", "PPR", "GCS", "MLP", "GATv2", "PR@K", "nDCG@K", "ceiling of PR"]


def test_nothing_is_explained_that_is_not_in_the_table(dataset: DatasetResult) -> None:
    systems = {"mine": dataset.systems["gatv2"]}
    assert legend(replace(dataset, systems=systems, ceiling=None), ["Success@3"]) == []
    assert explained_name("mine") == ""


def test_the_row_of_a_shipped_checkpoint_names_it(dataset: DatasetResult) -> None:
    shipped = {"gatv2": replace(dataset.systems["gatv2"], source="base")}
    line = "GATv2: the checkpoint base, a trained graph attention network"
    assert legend(replace(dataset, systems=shipped, ceiling=None), []) == [line]
    shipped = {"with the graph": shipped["gatv2"]}
    line = "with the graph: the reranker base with the edges of the corpus"
    assert legend(replace(dataset, systems=shipped, ceiling=None), []) == [line]


def test_baselines_with_the_restart_probabilities_of_several_checkpoints_share_a_line(dataset: DatasetResult) -> None:
    systems = dict.fromkeys(("ppr-base", "ppr-mine"), dataset.systems["ppr"])
    (line,) = legend(replace(dataset, systems=systems, ceiling=None), [])
    assert line.startswith("ppr-NAME: personalized PageRank")
    assert line.endswith("with the restart probability of the checkpoint NAME")


def test_reports_have_the_legend_and_plain_names(result: EvaluationResult) -> None:
    for report in (result.markdown(), result.html()):
        assert "personalized PageRank, no training" in report
        assert "percentage of questions whose relevant passages are all among the first K" in report
        assert "best by PR@10: GATv2" in report


def test_drafted_questions_are_no_headline(dataset: DatasetResult) -> None:
    drafted = replace(dataset, drafted=True)
    assert title_of(drafted) == "attack: 60 drafted questions, not asked by users, 12 candidates"
    assert notes_of(drafted, "own")[0].startswith("the questions are drafted from the passages")
    page = EvaluationResult("python evaluate.py", {"attack": drafted}).html()
    assert "test, drafted questions" in page


def test_expansion_that_loses_relevant_passages_gets_a_warning(dataset: DatasetResult) -> None:
    notes = notes_of(replace(dataset, ceiling=0.8, base_ceiling=0.9), "own")
    assert notes[1].startswith("warning: expansion along edges loses relevant passages of 6 more questions than it")
    assert not any("warning" in note for note in notes_of(replace(dataset, ceiling=0.9, base_ceiling=0.8), "own"))
