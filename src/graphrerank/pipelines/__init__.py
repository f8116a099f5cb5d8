"""Published retrieval systems as lists of operators."""

from graphrerank.pipelines.chain_of_thought import ChainOfThought
from graphrerank.pipelines.fact_graph_search import FactGraphSearch
from graphrerank.pipelines.frontier import AlternateFrontier
from graphrerank.pipelines.granker import GRanker
from graphrerank.pipelines.graph_rerank import GraphRerank, GraphScorer
from graphrerank.pipelines.hypothetical_passages import HypotheticalPassages
from graphrerank.pipelines.ket.rerank import chunk_corpus, pack_chunks
from graphrerank.pipelines.ket.retrieval import SOLUTIONS, Contexts, KETRetrieval, Solution, find_solution
from graphrerank.pipelines.ket.search import KETSearch
from graphrerank.pipelines.page_rank import PageRank
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from graphrerank.pipelines.rerank import Rerank
from graphrerank.pipelines.retag.keywords import ExtractiveKeywords, KeywordFinder, SummarySentences, WrittenKeywords
from graphrerank.pipelines.retag.retrieval import ReTAGRetrieval, ReTAGSearchSettings, RetrievedSummaries
from graphrerank.pipelines.retag.routing import route_to_topics
from graphrerank.pipelines.retag.search import ReTAGSearch
from graphrerank.pipelines.retag.setup import ReTAGSetup
from graphrerank.pipelines.retag.summaries import LevelSummaries
from graphrerank.pipelines.router import ComplexityScorer, Router, fuse_paths
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.steiner_tree import SteinerTree
from graphrerank.pipelines.step import Clock, Step, StepFactory, Workplace
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
    "ExtractiveKeywords",
    "FactGraphSearch",
    "GRanker",
    "GraphRerank",
    "GraphScorer",
    "HypotheticalPassages",
    "KETRetrieval",
    "KETSearch",
    "KeywordFinder",
    "LevelSummaries",
    "PageRank",
    "Pipeline",
    "ReTAGRetrieval",
    "ReTAGSearch",
    "ReTAGSearchSettings",
    "ReTAGSetup",
    "Rerank",
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
    "Workplace",
    "WrittenKeywords",
    "chunk_corpus",
    "find_solution",
    "fuse_paths",
    "pack_chunks",
    "route_to_topics",
]
