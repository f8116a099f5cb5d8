"""Alternative texts of images are found in each format, and texts that describe nothing are left out."""

import pytest

from graphrerank_documents.formats.alt_text import alt_text
from graphrerank_documents.reading import read_content

SHOWN = {
    "a.md": "# T\n\nSee ![a pump curve](x.png) ![image](y.png) ![](z.png) <img src='q.png' alt='IMG_1.png'> here.\n",
    "a.html": "<main><h1>T</h1><p>See <img src='x.png' alt='a pump curve'> <img alt='icon'> here.</p></main>",
    "a.rst": "T\n=\n\nSee |s| here.\n\n.. image:: y.png\n   :alt: 1.png\n.. |s| image:: x.png\n   :alt: a pump curve\n",
    "a.adoc": '= T\n\nSee image:x.png[alt="a pump curve",width=3] image:y.png[Screenshot 2024-05-01] here.\n',
    "a.tex": r"\section{T} See \includegraphics[alt={a pump curve}]{x.png} \includegraphics{y.png} here.",
    "a.wiki": "See [[File:X.png|thumb|alt=a pump curve]] [[File:Y.png|alt=y.png]] here.",
    "a.ipynb": '{"cells": [{"cell_type": "markdown", "source": "# T\\n\\nSee ![a pump curve](attachment:x) here."}]}',
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_an_alternative_text_is_part_of_the_passage(name: str) -> None:
    (document,) = read_content(SHOWN[name].encode(), name).documents
    text = " ".join(" ".join(block.text for section in document.sections for block in section.blocks).split())
    assert text == "See a pump curve here."


@pytest.mark.parametrize(
    "text",
    ["", "image", "Image 12", "a screenshot", "Screenshot 2024-05-01 at 10.12.00", "IMG_2031", "pump.png", "@ada",
     "https://example.org/x", "logo", "1", "*", "Figure 3:", "data:image/png;base64,AA"],
)  # fmt: skip
def test_a_text_that_describes_nothing_is_left_out(text: str) -> None:
    assert alt_text(text) == ""


@pytest.mark.parametrize("text", ["logo of the pump maker", "Figure 3: pressure", "图像显示", "Image of a valve", "pH"])
def test_a_description_is_kept(text: str) -> None:
    assert alt_text(text) == text


def test_a_text_that_repeats_the_caption_is_left_out() -> None:
    text = (
        "<main><figure><a href='x'><img alt='Pump curve'></a><figcaption>The pump curve.</figcaption></figure></main>"
    )
    (document,) = read_content(text.encode(), "a.html").documents
    assert [block.text for section in document.sections for block in section.blocks] == ["The pump curve."]
