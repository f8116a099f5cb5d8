"""Requests that add and remove passages: what is refused, and that no error repeats their text."""

import pytest
from pydantic import ValidationError

from graphrerank.data.corpus_folder.growth import NewEdge
from graphrerank.serving.documents_request import AddDocuments, RemoveDocuments
from graphrerank.serving.limits import Limits

LIMITS = Limits(documents=2, edges=2, text_chars=20, request_chars=30)
ONE = {"id": "secret", "text": "secret text"}


def test_a_request_becomes_passages_and_edges():
    edges = [["secret", "b"], ["b", "secret", 0.5, "citation"]]
    documents = [{**ONE, "title": "Title"}, {"id": "c", "text": "t"}]
    request = AddDocuments.model_validate({"documents": documents, "edges": edges}, context=LIMITS)
    assert request.documents[0].passage == "Title. secret text"
    assert request.edges == [NewEdge("secret", "b", 1.0, 4), NewEdge("b", "secret", 0.5, 0)]
    assert (request.num_documents, request.num_chars) == (2, 17)
    assert 0 < request.seconds < 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": []}, "at least 1 item"),
        ({"documents": [ONE, {**ONE, "id": "b"}, {**ONE, "id": "c"}]}, "`documents` must be at most 2, got 3"),
        ({"documents": [ONE, ONE]}, "`documents` must have different ids"),
        ({"documents": [{"id": " secret", "text": "t"}]}, "without tabs, line breaks or blanks"),
        ({"documents": [{"id": "secret" * 100, "text": "t"}]}, "must be 1 to 512 characters"),
        ({"documents": [{"id": 3, "text": "t"}]}, "must be 1 to 512 characters"),
        ({"documents": [{"id": "secret", "text": " "}]}, "document 0 must have a text"),
        ({"documents": [{"id": "secret", "text": "secret" * 4}]}, "document 0 must have at most 20 characters"),
        ({"documents": [{"id": i, "text": "s" * 19} for i in "ab"]}, "at most 30 characters, got 38"),
        ({"documents": [ONE], "edges": [["secret", "b"]] * 3}, "a list of at most 2"),
        ({"documents": [ONE], "edges": [["secret"]]}, "edge 0 must be"),
        ({"documents": [ONE], "edges": [["secret", "secret"]]}, "edge 0 must join two different ids"),
        ({"documents": [ONE], "edges": [["secret", 3]]}, "edge 0 must join two different ids"),
        ({"documents": [ONE], "edges": [["secret", "b", 0]]}, "edge 0 must have a weight"),
        ({"documents": [ONE], "edges": [["secret", "b", float("nan")]]}, "edge 0 must have a weight"),
        ({"documents": [ONE], "edges": [["secret", "b", True]]}, "edge 0 must have a weight"),
        ({"documents": [ONE], "edges": [["secret", "b", 1, 2]]}, "edge 0 must have the name of a type"),
        ({"documents": [ONE], "edges": [["a", "b"]]}, "edge 0 must be of a document of the request"),
    ],
)
def test_what_is_refused(body, message):
    with pytest.raises(ValidationError) as caught:
        AddDocuments.model_validate(body, context=LIMITS)
    errors = caught.value.errors(include_input=False, include_context=False, include_url=False)
    assert message in str(errors)
    assert "secret" not in str([error["msg"] for error in errors])


def test_ids_to_remove_are_limited():
    assert RemoveDocuments.model_validate({"ids": ["a", "b"]}, context=LIMITS).num_documents == 2
    for ids, message in ((["a", "b", "c"], "`ids` must be at most 2, got 3"), ([], "at least 1"), ([""], "must be 1")):
        with pytest.raises(ValidationError, match=message):
            RemoveDocuments.model_validate({"ids": ids}, context=LIMITS)
