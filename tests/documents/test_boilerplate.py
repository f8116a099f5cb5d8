"""What pages of a site repeat is left out."""

from collections.abc import Iterable

from graphrerank_documents.boilerplate import edge_keys, repeated_keys, without_repeated
from graphrerank_documents.document import Block, Document, Section


def site(number: int, folder: str = "docs/") -> list[Document]:
    """Pages with a menu, a text and a notice; the notice stands on all but four of them."""
    pages = []
    for page in range(number):
        texts = ["Home | Guide", f"Text of {page}", *["All rights  reserved"] * (page >= 4), "End"]
        menu, *others = (Block(text) for text in texts)
        sections = (Section("", (menu,), anchors=("top",)), Section("Page", tuple(others)))
        pages.append(Document(f"{folder}{page % 3}/{page}.html", "Page", sections, is_page=True))
    return pages


def page_of(name: str, texts: Iterable[str]) -> Document:
    return Document(name, "P", (Section("", tuple(map(Block, texts))),), is_page=True)


def kept(pages: list[Document]) -> list[list[str]]:
    repeated = repeated_keys({page.name: edge_keys(page) for page in pages})
    cut = [without_repeated(page, repeated.get(page.name, ())) for page in pages]
    return [[block.text for part in page.sections for block in part.blocks] for page in cut]


def test_blocks_of_most_pages_are_left_out_and_counted():
    pages = site(12)
    assert kept(pages) == [[f"Text of {page}"] for page in range(12)]
    cut = without_repeated(pages[5], edge_keys(pages[6]))
    assert (dict(cut.dropped), cut.sections[0].anchors) == ({"repeated blocks": 3}, ("top",))


def test_few_pages_and_other_documents_keep_what_they_have():
    assert kept(site(9))[8] == ["Home | Guide", "Text of 8", "All rights  reserved", "End"]
    assert edge_keys(Document("a.md", "A", (Section("", (Block("text"),)),))) == frozenset()


def test_another_site_in_the_folder_tells_nothing():
    pages = [*site(12, "a/"), *(page_of(f"b/{i}.html", [f"{i}", "End" if i % 3 else "Fin"]) for i in range(40))]
    assert kept(pages)[0] == ["Text of 0"]
    assert kept(pages)[-2:] == [["38"], ["39", "Fin"]]


def test_the_middle_of_a_page_and_pages_that_are_all_alike_stay():
    pages = [
        page_of(f"{i}.html", [*(f"line {n}" for n in range(30)), *(f"{i} {n}" for n in range(30))]) for i in range(10)
    ]
    assert all("line 25" in page and "line 5" not in page for page in kept(pages))
    assert kept([page_of(f"{i}.html", ["Moved"]) for i in range(10)]) == [["Moved"]] * 10
