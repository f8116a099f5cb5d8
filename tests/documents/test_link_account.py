"""The steps in which links become edges and counts, each with results worked out by hand."""

import pytest

from graphrerank_documents.document import PAGE, SYMBOL, Document, Link, Section
from graphrerank_documents.link_account import LinkTally, LinkTargets, TypeCount
from graphrerank_documents.links import document_numbers, edges_of, first_passages_of, resolve_links
from graphrerank_documents.passages import Passage
from graphrerank_documents.redirects import REDIRECT


def passage(document: str, section: int, number: int = 0, *links: Link) -> Passage:
    return Passage(f"{document}:{section}.{number}", "", "text", document, number, "", section, 1, links)


def test_the_first_document_of_a_name_has_its_number() -> None:
    assert document_numbers([Document(name, "", ()) for name in ("a", "b", "a")]) == {"a": 0, "b": 1}


def test_a_link_to_a_section_without_text_leads_to_the_next_one() -> None:
    documents = [Document("a", "", (Section("x"), Section("y"), Section("z"))), Document("b", "", (Section("w"),))]
    passages = [passage("a", 1), passage("a", 1, 1)]
    assert first_passages_of(documents, passages, {"a": 0, "b": 1}) == {
        (0, None): "a:1.0",
        (0, 0): "a:1.0",
        (0, 1): "a:1.0",
        (0, 2): "a:1.0",
        (1, 0): "",
    }


def test_edges_lead_to_other_passages_only() -> None:
    link, first = Link("x", edge="call"), {(0, None): "a:0.0", (1, None): "b:0.0", (2, None): ""}
    targets = LinkTargets(((0, None), (1, None), (2, None), (3, None)))
    assert list(edges_of(passage("a", 0), link, targets, first)) == [("a:0.0", "b:0.0", "call")]
    assert not list(edges_of(passage("a", 0), link, None, first))


@pytest.mark.parametrize(
    ("link", "targets", "is_within", "counts"),
    [
        (Link("https://x"), None, False, {"foreign": 1}),
        (Link("b"), LinkTargets(((1, None),)), True, {"within": 1}),
        (Link("b#x"), LinkTargets(((1, 2),)), True, {"within": 1, "to_section": 1}),
        (Link("b"), LinkTargets(((1, None),), is_redirected=True), True, {"within": 1, "redirected": 1}),
        (Link("#x"), LinkTargets(((0, 0),)), True, {}),
        (Link("c", 3), LinkTargets(), True, {"within": 1, "dead": [("a", 3, "c")]}),
        (Link("b#y"), LinkTargets(((1, None),), " (none)"), True, {"within": 1, "dead": [("a", 0, "b#y (none)")]}),
        (Link("c", kind=SYMBOL, edge="call"), LinkTargets(), False, {}),
        (
            Link("c", kind=SYMBOL, edge="import"),
            LinkTargets(),
            True,
            {"within_by_type": {"import": 1}, "resolved_by_type": {"import": 0}, "dead_imports": [("a", 0, "c")]},
        ),
        (
            Link("b", kind=PAGE, edge="property"),
            LinkTargets(((1, None),)),
            True,
            {"within": 1, "within_by_type": {"property": 1}, "resolved_by_type": {"property": 1}},
        ),
    ],
)
def test_each_kind_of_link_is_counted_once(
    link: Link, targets: LinkTargets | None, is_within: bool, counts: dict[str, object]
) -> None:
    tally = LinkTally()
    tally.add_link(passage("a", 0), link, targets, 0, is_within=is_within)
    assert {name: value for name, value in vars(tally).items() if value} == counts


def test_redirects_are_counted_with_the_links() -> None:
    tally = LinkTally()
    for targets in (None, LinkTargets(((1, None),)), LinkTargets()):
        tally.add_redirect("a", Link("/b", 2, edge=REDIRECT), targets)
    account = tally.account()
    assert (account.within, account.resolved, account.foreign, account.dead) == (2, 1, 1, [("a", 2, "/b")])
    assert account.by_type == {REDIRECT: TypeCount(2, 1)}


def test_a_link_whose_resolution_fails_is_broken_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    monkeypatch.setattr("graphrerank_documents.links.Pages.find", fail)
    failures: dict[str, list[str]] = {}
    documents = [Document("a", "", (Section(""),)), Document("b", "", (), redirect=Link("c", edge=REDIRECT))]
    edges, account = resolve_links(documents, [passage("a", 0, 0, Link("b"))], failures=failures)
    assert (edges, account.within, len(account.dead)) == ([], 2, 2)
    assert failures == {"read, but links cannot be resolved (LookupError)": ["a", "b"]}
    with pytest.raises(LookupError):
        resolve_links(documents, [passage("a", 0, 0, Link("b"))])
