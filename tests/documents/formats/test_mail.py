"""Mail: messages as documents, their replies as links, and no quotes, signatures or files in the text."""

import random

import pytest

from graphrerank_documents.document import LABEL, Link, UnreadableError
from graphrerank_documents.formats.mail import read_eml, read_mbox
from graphrerank_documents.reading import read_content

FIRST = b"""From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>
Date: Mon, 01 Jan 2024 10:30:00 +0000
Subject: Pump
  fails
Message-ID: <1@example.org>
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

The pump f=F6rdert nothing.

>From the start it leaked.
--=20
J=FCrgen
--b
Content-Type: application/pdf
Content-Disposition: attachment; filename="plan.pdf"

JVBERi0=
--b--
"""
SECOND = b"""From: ann@example.org
Subject: Re: Pump fails
Message-ID: <2@example.org>
In-Reply-To: <lost@example.org>
References: <0@example.org> <1@example.org>

On Mon, 1 Jan 2024, someone of the long
list wrote:
> The pump leaked.
> Why?

Change the seal.

From here on it holds.

-----Original Message-----
From: x
"""
MBOX = b"From j@example.org Mon Jan  1 10:30:00 2024\n" + FIRST + b"\nFrom - Mon Jan  1 11:00:00 2024\n" + SECOND


def test_an_archive():
    first, second = read_mbox(MBOX, "list/2024.mbox")
    assert (first.name, first.title) == ("list/2024.mbox#1@example.org", "Pump fails")
    (section,) = first.sections
    assert [block.text for block in section.blocks] == [
        "From: Jürgen <j@example.org>, 2024-01-01 10:30",
        "The pump fördert nothing.\n\nFrom the start it leaked.",
        "Attachments: plan.pdf",
    ]
    assert (section.line, section.end, section.labels) == (2, 23, ("1@example.org",))
    (section,) = second.sections
    assert section.blocks[1].text == "Change the seal.\n\nFrom here on it holds."
    assert section.blocks[0].links == (Link("1@example.org", section.line, LABEL, "reply"),)
    assert (section.line, section.end) == (26, 42)
    crlf, _ = read_mbox(MBOX.replace(b"\n", b"\r\n"), "list/2024.mbox")
    assert crlf.sections[0].blocks == first.sections[0].blocks


def test_a_message():
    (document,) = read_eml(SECOND, "a.eml")
    assert (document.name, document.title) == ("a.eml", "Re: Pump fails")
    assert document.sections[0].blocks[0].links[0].target == "lost@example.org"
    (document,) = read_eml(b"Subject: =?utf-8?b?nonsense\nFrom: caf\xc3\xa9\n\n> only a quote", "b.eml")
    assert [block.text for block in document.sections[0].blocks] == ["From: café", "only a quote"]
    forwarded = b"From: a\n\nSee:\n---------- Forwarded message ---------\nFrom: b\nSubject: c\n\nThe text."
    assert read_eml(forwarded, "c.eml")[0].sections[0].blocks[1].text == "See:\n\nThe text."
    part = b"--b\n\nOne.\n-- \nAnn\n--b\nContent-Type: message/rfc822\n\nFrom: c\n\nTwo.\n--b--"
    (document,) = read_eml(b"From: a\nContent-Type: multipart/mixed; boundary=b\n\n" + part, "d.eml")
    assert document.sections[0].blocks[1].text == "One.\n\nTwo."
    (document,) = read_eml(b"From: a\nContent-Type: text/html; charset=latin-1\n\n<p>Gr\xf6\xdfe <b>x</b></p>", "a.eml")
    assert document.sections[0].blocks[1].text == "Größe x"


def test_a_message_twice_and_one_that_is_damaged():
    start = b"From x Mon Jan  1 10:30:00 2024\n"
    found = read_mbox(start + SECOND + b"\n" + start + SECOND + b"\n" + start + b"no header\n\n", "a.mbox")
    assert [document.name for document in found] == ["a.mbox#2@example.org", "a.mbox#2@example.org:2"]
    for read in (read_mbox, read_eml):
        with pytest.raises(UnreadableError):
            read(b"no mail at all", "x")


def test_damaged_files_are_read_or_refused():
    rng = random.Random(7)
    for number in range(300):
        content = bytearray(MBOX if number % 2 else FIRST)
        for _ in range(rng.randrange(12)):
            content[rng.randrange(len(content))] = rng.choice(b'\n\n:;=<>"?( \0\xff' + rng.randbytes(1))
        kind = "mbox" if number % 2 else "eml"
        file = read_content(bytes(content[: rng.randrange(len(content) + 1)]), f"x.{kind}")
        assert bool(file.documents) != bool(file.reason)


@pytest.mark.parametrize(
    "content",
    [
        b"From: a\n" + b"Content-Type: multipart/mixed; boundary=b\n\n--b\n" * 5000,
        b"From: a\n" + b"Content-Type: message/rfc822\n\n" * 20_000,
        b"From: a\nContent-Type: text/plain; " + b'a="; ; ' * 20_000 + b"\n\nx",
        b"From: a\nSubject: " + b"=?utf-8?q?" * 100_000 + b"\n\nx",
        b"From: " + b"(" * 1_000_000 + b"\n\nx",
        b"From: a\nDate: " + b"1 " * 100_000 + b"\n\n" + b">" * 1_000_000,
        b"From: a\n\n" + b"On " * 500_000,
        b"From: a\n\n" + b"On a:\n" * 100_000 + b"\n" * 100_000,
        b"From " + b"12:34 " * 200_000,
    ],
)  # fmt: skip
def test_long_headers_and_many_parts_are_read_to_the_end(content):
    for kind in ("eml", "mbox"):
        file = read_content(content, f"x.{kind}")
        assert bool(file.documents) != bool(file.reason)


def test_html_attached_texts_and_attached_messages_are_read():
    content = b"""Message-ID: <a@x>
Subject: Outer
Content-Type: multipart/mixed; boundary=X

--X
Content-Type: multipart/alternative; boundary=Y

--Y
Content-Type: text/html

<p>An <b>HTML</b> text</p>
--Y--
--X
Content-Type: message/rfc822

Message-ID: <b@x>
Subject: Inner

The inner text
--X
Content-Type: text/plain; name=notes.txt
Content-Disposition: attachment; filename=notes.txt

The notes
--X--
"""
    (document,) = read_eml(content, "a.eml")
    (section,) = document.sections
    assert [block.text for block in section.blocks] == [
        "An HTML text\n\nInner\n\nThe inner text\n\nThe notes",
        "Attachments: notes.txt",
    ]


def test_damaged_messages_of_an_archive_are_counted():
    good = b"From a 00:00\nMessage-ID: <a@x>\nSubject: S\n\ntext\n\n"
    documents = read_mbox(good + b"From b 00:00\nno headers at all\n", "a.mbox")
    assert [document.dropped for document in documents] == [{"damaged messages": 1}]
