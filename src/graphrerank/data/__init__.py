"""Readers, encoding, candidate lists and batches."""

from graphrerank.data.candidates import PreparedDataset, prepare
from graphrerank.data.corpus_folder import (
    EdgeError,
    Growth,
    NewEdge,
    compact_corpus,
    grow_corpus,
    open_corpus,
    prepare_corpus,
)
from graphrerank.data.cross_encoder_columns import with_cross_encoder
from graphrerank.data.dataset import Qrels, RetrievalDataset
from graphrerank.data.encoder import SentenceTransformerEncoder, packaged_model
from graphrerank.data.endpoint_encoder import EndpointEncoder
from graphrerank.data.memory_vector_cache import MemoryVectorCache
from graphrerank.data.pair_cache import PairCache
from graphrerank.data.readers.attack import load_attack
from graphrerank.data.readers.attack_paths import load_attack_paths
from graphrerank.data.readers.documents import read_documents, read_queries
from graphrerank.data.readers.file_knowledge import FileKnowledge
from graphrerank.data.readers.folder import load_folder
from graphrerank.data.readers.ir_datasets import load_ir_dataset
from graphrerank.data.readers.named import load_named
from graphrerank.data.readers.reference_network import load_reference_network
from graphrerank.data.readers.run_candidates import read_run
from graphrerank.data.readers.sql_dataset import load_sql_dataset
from graphrerank.data.readers.sql_schema import load_sql_schema
from graphrerank.data.run_retriever import RunRetriever
from graphrerank.data.text_rich_graph import load_text_rich_graph, text_rich_graph
from graphrerank.data.vector_cache import VectorCache

__all__ = [
    "EdgeError",
    "EndpointEncoder",
    "FileKnowledge",
    "Growth",
    "MemoryVectorCache",
    "NewEdge",
    "PairCache",
    "PreparedDataset",
    "Qrels",
    "RetrievalDataset",
    "RunRetriever",
    "SentenceTransformerEncoder",
    "VectorCache",
    "compact_corpus",
    "grow_corpus",
    "load_attack",
    "load_attack_paths",
    "load_folder",
    "load_ir_dataset",
    "load_named",
    "load_reference_network",
    "load_sql_dataset",
    "load_sql_schema",
    "load_text_rich_graph",
    "open_corpus",
    "packaged_model",
    "prepare",
    "prepare_corpus",
    "read_documents",
    "read_queries",
    "read_run",
    "text_rich_graph",
    "with_cross_encoder",
]
