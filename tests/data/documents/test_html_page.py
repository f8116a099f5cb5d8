"""What a page shows, and where its links are."""


def test_html(read):
    content = (
        "<html><head><title>The &amp; page</title><style>p{}</style></head><body><p>One <b>bold</b>\n word.</p>"
        "<p>Two</p>"
        "<script>alert('no')</script><h2>Next <i>part</i></h2>after <a href='b.html#x'>link</a></body></html>"
    )
    (document,) = read("a.html", content)
    assert document.title == "The & page"
    assert [(s.heading, s.text) for s in document.sections] == [
        ("", "One bold word.\n\nTwo"),
        ("Next part", "after link"),
    ]
    assert document.sections[1].links == ((6, "b.html#x"),)


def test_html_without_optional_tags_with_cells_and_pictures(read):
    content = (
        "<!DOCTYPE html><head><title>T</title><svg><title>icon</title></svg><body><p>One <a href=x.html>two</a>"
        "<table><tr><td>Weight</td><td>5 kg</td></tr></table><p> <a href='y.html'>three</a>"
    )
    (document,) = read("a.html", content)
    assert document.title == "T"
    (section,) = document.sections
    assert section.text == "One two\n\nWeight 5 kg\n\nthree"
    assert [(section.text[place:], target) for place, target in section.links] == [
        ("two\n\nWeight 5 kg\n\nthree", "x.html"), ("three", "y.html"),
    ]  # fmt: skip
