"""The one judge: systems give rankings and costs, and a study measures, tests and explains them."""

from graphrerank.evaluation.build_study import build_study
from graphrerank.evaluation.cost import peak_memory_mib
from graphrerank.evaluation.ranked_system import RankedDataset, RankedSystem
from graphrerank.evaluation.reranking import measure_queries, rerank, run_reranker
from graphrerank.evaluation.run_json import RETRIEVER
from graphrerank.evaluation.run_pipelines import run_pipelines
from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.study import DatasetStudy, SystemStudy
from graphrerank.evaluation.study_plan import StudyPlan
from graphrerank.evaluation.system import System, base_ranking
from graphrerank.evaluation.tune import tune_restart_prob

__all__ = [
    "RETRIEVER",
    "DatasetStudy",
    "RankedDataset",
    "RankedSystem",
    "StudyPlan",
    "System",
    "SystemStudy",
    "base_ranking",
    "bootstrap_interval",
    "build_study",
    "measure_queries",
    "paired_randomization",
    "peak_memory_mib",
    "rerank",
    "run_pipelines",
    "run_reranker",
    "tune_restart_prob",
]
