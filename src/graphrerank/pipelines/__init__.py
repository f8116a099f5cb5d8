"""Published retrieval systems as lists of operators; KET-RAG's and ReTAG's in packages of their own."""

from graphrerank.pipelines.chain_of_thought import ChainOfThought
from graphrerank.pipelines.fact_graph_search import FactGraphSearch
from graphrerank.pipelines.frontier import AlternateFrontier
from graphrerank.pipelines.granker import GRanker
from graphrerank.pipelines.graph_rerank import GraphRerank
from graphrerank.pipelines.hippo_rag import HippoRAGSearch
from graphrerank.pipelines.hypothetical_passages import HypotheticalPassages
from graphrerank.pipelines.ket import KETSearch
from graphrerank.pipelines.knowledge_graph_prompting import KnowledgeGraphPrompting
from graphrerank.pipelines.light_rag import LightRAGSearch
from graphrerank.pipelines.page_rank import PageRank
from graphrerank.pipelines.path_rag import PathRAGSearch
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from graphrerank.pipelines.raptor import RAPTORSearch
from graphrerank.pipelines.rerank import Rerank
from graphrerank.pipelines.retag import ReTAGSearch, ReTAGSearchSettings, ReTAGSetup
from graphrerank.pipelines.router import Router
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.steiner_tree import SteinerTree
from graphrerank.pipelines.step import Resources
from graphrerank.pipelines.stex import STeX
from graphrerank.pipelines.until_budget import UntilBudget
from graphrerank.pipelines.vector_search import VectorSearch

__all__ = [
    "AlternateFrontier",
    "ChainOfThought",
    "FactGraphSearch",
    "GRanker",
    "GraphRerank",
    "HippoRAGSearch",
    "HypotheticalPassages",
    "KETSearch",
    "KnowledgeGraphPrompting",
    "LightRAGSearch",
    "PageRank",
    "PathRAGSearch",
    "Pipeline",
    "RAPTORSearch",
    "ReTAGSearch",
    "ReTAGSearchSettings",
    "ReTAGSetup",
    "Rerank",
    "Resources",
    "RetrievalState",
    "Retrieved",
    "Router",
    "STeX",
    "SteinerTree",
    "UntilBudget",
    "VectorSearch",
]
