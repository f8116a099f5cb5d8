"""Published retrieval systems as lists of operators; KET-RAG's and ReTAG's in packages of their own."""

from graphrerank.pipelines.chain_of_thought import ChainOfThought
from graphrerank.pipelines.fact_graph_search import FactGraphSearch
from graphrerank.pipelines.frontier import AlternateFrontier
from graphrerank.pipelines.granker import GRanker
from graphrerank.pipelines.graph_rerank import GraphRerank, GraphScorer
from graphrerank.pipelines.hypothetical_passages import HypotheticalPassages
from graphrerank.pipelines.ket import (
    SOLUTIONS,
    Contexts,
    KETRetrieval,
    KETSearch,
    Solution,
    chunk_corpus,
    find_solution,
    pack_chunks,
)
from graphrerank.pipelines.page_rank import PageRank
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from graphrerank.pipelines.rerank import Rerank
from graphrerank.pipelines.retag import (
    LevelSummaries,
    ReTAGRetrieval,
    ReTAGSearch,
    ReTAGSearchSettings,
    ReTAGSetup,
    RetrievedSummaries,
    SummarySentences,
)
from graphrerank.pipelines.router import ComplexityScorer, Router, fuse_paths
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.steiner_tree import SteinerTree
from graphrerank.pipelines.step import Clock, Resources, Step, StepFactory
from graphrerank.pipelines.stex import STeX
from graphrerank.pipelines.until_budget import UntilBudget
from graphrerank.pipelines.vector_search import VectorSearch

__all__ = [
    "SOLUTIONS",
    "AlternateFrontier",
    "ChainOfThought",
    "Clock",
    "ComplexityScorer",
    "Contexts",
    "FactGraphSearch",
    "GRanker",
    "GraphRerank",
    "GraphScorer",
    "HypotheticalPassages",
    "KETRetrieval",
    "KETSearch",
    "LevelSummaries",
    "PageRank",
    "Pipeline",
    "ReTAGRetrieval",
    "ReTAGSearch",
    "ReTAGSearchSettings",
    "ReTAGSetup",
    "Rerank",
    "Resources",
    "RetrievalState",
    "Retrieved",
    "RetrievedSummaries",
    "Router",
    "STeX",
    "Solution",
    "SteinerTree",
    "Step",
    "StepFactory",
    "SummarySentences",
    "UntilBudget",
    "VectorSearch",
    "chunk_corpus",
    "find_solution",
    "fuse_paths",
    "pack_chunks",
]
