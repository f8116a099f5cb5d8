"""Routes of the service of a reranker."""

from graphrerank.serving.batching import FEEDBACK
from graphrerank.serving.routes import Route
from graphrerank.serving.schemas.documents import AddDocuments, DocumentsResponse, RemoveDocuments
from graphrerank.serving.schemas.feedback import AddFeedback, FeedbackResponse, RemoveFeedback
from graphrerank.serving.schemas.inspection import InspectRequest, InspectResponse
from graphrerank.serving.schemas.other_formats import (
    InfinityResponse,
    VoyageResponse,
    render_infinity,
    render_voyage,
)
from graphrerank.serving.schemas.rerank import RerankRequest, RerankResponse, render_rerank
from graphrerank.serving.schemas.search import SearchRequest, SearchResponse
from graphrerank.serving.schemas.tei import TeiRequest, TeiResult, render_tei

RERANK = Route(
    ("/v1/rerank", "/v2/rerank"),
    "rerank",
    RerankRequest,
    RerankResponse,
    "Rank documents, in the format of Cohere.",
    render_rerank,
)
TEI = Route(
    ("/rerank",),
    "rerank",
    TeiRequest,
    list[TeiResult] | RerankResponse,
    "Rank `texts` in the format of TEI, or `documents` in the format of Cohere.",
    render_tei,
    with_documents=RerankRequest,
)
INFINITY = Route(
    ("/infinity/rerank",),
    "rerank",
    RerankRequest,
    InfinityResponse,
    "Rank documents, in the format of Infinity, which returns documents as texts.",
    render_infinity,
)
VOYAGE = Route(
    ("/voyage/v1/rerank",),
    "rerank",
    RerankRequest,
    VoyageResponse,
    "Rank documents, in the format of Voyage AI.",
    render_voyage,
)
INSPECT = Route(
    ("/inspect",),
    "inspect",
    InspectRequest,
    InspectResponse,
    "Search the indexed corpus and return the result of every step.",
)
SEARCH = Route(("/search",), "search", SearchRequest, SearchResponse, "Search the indexed corpus.")
ADD_DOCUMENTS = Route(
    ("/documents",), "documents", AddDocuments, DocumentsResponse, "Add passages to the corpus, or replace passages."
)
REMOVE_DOCUMENTS = Route(
    ("/documents",),
    "documents",
    RemoveDocuments,
    DocumentsResponse,
    "Remove passages from the corpus.",
    method="DELETE",
)
ADD_FEEDBACK = Route(
    ("/feedback",),
    FEEDBACK,
    AddFeedback,
    FeedbackResponse,
    "Report which results of a response were clicked, cited, accepted or dismissed.",
)
REMOVE_FEEDBACK = Route(
    ("/feedback",), FEEDBACK, RemoveFeedback, FeedbackResponse, "Delete all logged events of a user.", method="DELETE"
)
RERANK_ROUTES = (RERANK, TEI, INFINITY, VOYAGE)  # formats in which the documents of a request are ranked
