"""What bytes say as text, and what of a text is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrerank_documents.document import UnreadableError
from graphrerank_documents.formats.text import decode_text, read_plain_text, without_blobs

GERMAN = "Die Pumpe fördert sechs bar, größer als „üblich“."


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_unicode_with_and_without_its_mark(encoding):
    assert decode_text(f"{GERMAN}\r\nEnde\rx".encode(encoding)) == f"{GERMAN}\nEnde\nx"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Größe", "latin-1"),
        (GERMAN, "cp1252"),
        ("Le déjà-vu arrive souvent à l'été: “Oui”.", "cp1252"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cp1250"),
        ("泵的压力是六巴。", "gb18030"),
        ("泵的壓力是六巴。", "big5"),
        ("펌프의 압력은 6바입니다.", "cp949"),
        ("ポンプの圧力は六バールです。", "cp932"),
        ("ポンプの圧力は六バールです。", "euc_jp"),
        ("Почему жидкость нагревается? Смотрите руководство.", "cp1251"),
        ("Почему жидкость нагревается? Смотрите руководство.", "koi8_r"),
    ],
)
def test_short_texts_that_do_not_say_their_encoding(text, encoding):
    assert decode_text(text.encode(encoding)) == text


def test_encoding_that_a_file_says():
    assert decode_text("Привет".encode("iso8859_5"), "ISO-8859-5") == "Привет"
    assert decode_text("日本".encode("iso2022_jp"), "iso-2022-jp") == "日本"
    assert decode_text("Größe".encode(), "iso-8859-1") == "Größe"  # UTF-8 that says something else
    for no_encoding in ("hex", "punycode", "utf-7", "undefined", "x" * 5000, "\0", "ü"):
        assert decode_text("Größe".encode("latin-1"), no_encoding) == "Größe"


def test_a_few_wrong_bytes_in_utf_8():
    assert decode_text("ü".encode() * 100 + b"\xfc") == "ü" * 100 + "\ufffd"


@pytest.mark.parametrize("content", [b"text \0 with nul", bytes(range(256)) * 9, b"\x01\x02\x03\x04abc"])
def test_bytes_that_are_no_text(content):
    with pytest.raises(UnreadableError, match="binary, not a text"):
        decode_text(content)


@given(st.binary(max_size=200), st.sampled_from(["", "utf-8", "utf-16", "utf_8_sig", "cp437", "hz", "utf-7"]))
def test_any_bytes(content, said):
    try:
        text = decode_text(content, said)
    except UnreadableError:
        return
    assert not set(text) & {"\0", "\r"}
    text.encode()


def test_blobs_are_dropped_and_counted():
    script = "".join(f"f{i}({i})," for i in range(500))
    text = f"a ![x](data:image/png;base64,{'QUJD' * 50}) b\n{script}\n{'Prose of one line. ' * 100}\n{'长' * 2000}\n"
    shown, dropped = without_blobs(text)
    assert shown == f"a ![x](data:,) b\n\n{'Prose of one line. ' * 100}\n{'长' * 2000}\n"
    assert dropped == {"data URIs": 1, "minified lines": 1}
    (document,) = read_plain_text(script.encode(), "app.min.css")
    assert (document.sections, document.dropped) == ((), {"minified lines": 1})


def test_paragraphs_and_programs():
    (document,) = read_plain_text(b"\nNotes\n\nFirst\nline. \n\n\nSecond.\n", "a/notes.txt")
    (section,) = document.sections
    assert (document.title, section.line, section.end) == ("Notes", 1, 8)
    assert [(block.text, block.line) for block in section.blocks] == [("Notes", 2), ("First\nline.", 4), ("Second.", 8)]
    (document,) = read_plain_text(b"\n  a {\n\n  }\n", "a/b.css")
    (block,) = document.sections[0].blocks
    assert (document.title, block.text, block.line, block.is_whole) == ("b.css", "  a {\n\n  }", 2, True)
