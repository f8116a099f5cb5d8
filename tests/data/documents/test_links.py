"""Links between the files of a folder."""

from graphrerank.data.documents.index_folder import index_folder


def test_links_are_of_the_passage_that_has_them(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.html").write_text(
        f"<p>{'one ' * 6}<a href='b.html'>b</a></p><p>{'two ' * 6}<a href='c.html'>c</a></p>"
    )
    (folder / "b.html").write_text("<p>B <a href='/c.html?x=1#y'>c</a> <a href='mailto:a.html'>m</a></p>")
    (folder / "c.html").write_text("<p>C <a href='./'>home</a></p>")
    (folder / "index.md").write_text("# Home\n\n[[C]] [[No]] [b](b)\n")
    index_folder(folder, tmp_path / "out", max_words=8)
    lines = (tmp_path / "out" / "edges.tsv").read_text().splitlines()
    assert lines[1:] == [
        "a.html:0\tb.html:0\tlink",
        "a.html:1\tc.html:0\tlink",
        "b.html:0\tc.html:0\tlink",
        "c.html:0\tindex.md:0\tlink",
        "index.md:0\tc.html:0\tlink",
        "index.md:0\tb.html:0\tlink",
    ]
