"""The routes of the service of a reranker."""

from graphrerank.serving.batching import FEEDBACK
from graphrerank.serving.routes import Route
from graphrerank.serving.schemas.documents import AddDocuments, DocumentsResponse, RemoveDocuments
from graphrerank.serving.schemas.feedback import AddFeedback, FeedbackResponse, RemoveFeedback
from graphrerank.serving.schemas.inspection import InspectRequest, InspectResponse
from graphrerank.serving.schemas.rerank import RerankRequest, RerankResponse, render_rerank
from graphrerank.serving.schemas.search import SearchRequest, SearchResponse
from graphrerank.serving.schemas.tei import TeiRequest, TeiResult, render_tei

RERANK = Route(
    ("/v1/rerank", "/v2/rerank"),
    "rerank",
    RerankRequest,
    RerankResponse,
    "Rank documents, in Cohere's wire format.",
    render_rerank,
)
TEI = Route(
    ("/rerank",),
    "rerank",
    TeiRequest,
    list[TeiResult] | RerankResponse,
    "Rank `texts`, in TEI's wire format, or `documents`, in Cohere's.",
    render_tei,
    with_documents=RerankRequest,
)
INSPECT = Route(
    ("/inspect",), "inspect", InspectRequest, InspectResponse, "Search the indexed corpus, and return every step of it."
)
SEARCH = Route(("/search",), "search", SearchRequest, SearchResponse, "Search the indexed corpus.")
ADD_DOCUMENTS = Route(
    ("/documents",), "documents", AddDocuments, DocumentsResponse, "Add passages to the corpus, or replace some."
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
    "Say which results of an answer were clicked, cited, accepted or dismissed.",
)
REMOVE_FEEDBACK = Route(
    ("/feedback",), FEEDBACK, RemoveFeedback, FeedbackResponse, "Delete what is remembered of a user.", method="DELETE"
)
