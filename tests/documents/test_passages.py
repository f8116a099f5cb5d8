"""Laws of passages: no word is lost, the bounds are kept, what is whole stays whole, ids are unique and stable."""

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from graphrerank.text.languages import UNSPACED
from graphrerank_documents.document import Block, Document, Link, Section
from graphrerank_documents.passages import MAX_CHARS, Passage, passages_of

_WORDS = st.text(alphabet="ab.é 。東京\n!", min_size=1, max_size=60)
_TEXTS = st.one_of(_WORDS, st.lists(_WORDS, min_size=1, max_size=12).map(" x. ".join)).filter(str.strip).map(str.strip)
_HEADERS = st.sampled_from(["", "", "Name | Price"])


@st.composite
def _blocks(draw: st.DrawFn) -> Block:
    header = draw(_HEADERS)
    is_whole, is_tight = draw(st.booleans()) or bool(header), draw(st.booleans())
    text = draw(_TEXTS)
    return Block(text, draw(st.integers(0, 50)), (), is_whole, is_tight, header)


_SECTIONS = st.builds(
    Section,
    heading=st.sampled_from(["", "Setup", "Set up!", "設定", "???", "Setup-1"]),
    blocks=st.lists(_blocks(), max_size=8).map(tuple),
    anchors=st.sampled_from([(), ("setup",), ("a~2", "b"), ("a",)]),
)


def _document(*sections: Section, title: str = "Guide") -> Document:
    return Document("docs/guide.md", title, sections)


def _cut(*blocks: Block, max_words: int = 10, max_chars: int = MAX_CHARS) -> list[Passage]:
    return list(passages_of(_document(Section("", blocks)), max_words=max_words, max_chars=max_chars))


def _bare(text: str) -> str:
    return "".join(text.replace("Name | Price", "").split())


@settings(max_examples=120, deadline=None)
@given(st.lists(_SECTIONS, max_size=4), st.integers(6, 12), st.integers(40, 300))
def test_laws(sections, max_words, max_chars):
    document = _document(*sections)
    passages = list(passages_of(document, max_words=max_words, max_chars=max_chars))
    assert [each.number for each in passages] == list(range(len(passages)))
    assert len({each.id for each in passages}) == len(passages)
    for place, section in enumerate(sections):
        own = [each.text for each in passages if each.section == place]
        assert _bare("".join(own)) == _bare("".join(block.text for block in section.blocks))
        for block in section.blocks:
            if block.is_whole and len(block.text) + len(block.header) < max_chars:
                assert any(block.text in text for text in own)
                assert not block.header or any(block.header in text for text in own)
    for passage in passages:
        assert 0 < len(passage.text) <= max_chars
        assert passage.text == passage.text.rstrip()
        if not any(block.is_whole for block in sections[passage.section].blocks):
            assert len(re.findall(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+", passage.text)) <= max_words


@settings(max_examples=50, deadline=None)
@given(st.lists(_SECTIONS, min_size=1, max_size=4), st.text(max_size=40))
def test_ids_are_stable_when_other_sections_change(sections, text):
    heads = [replace(each, heading=f"Head {place}", anchors=()) for place, each in enumerate(sections)]
    before = {each.id: each.text for each in passages_of(_document(*heads), max_words=5)}
    new = Section("New one", (Block(text.strip() or "x"),))
    after = {each.id: each.text for each in passages_of(_document(new, *heads), max_words=5)}
    assert before.items() <= after.items()


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=300), st.booleans(), st.integers(1, 20))
def test_any_characters(text, is_whole, max_words):
    passages = _cut(Block(text, is_whole=is_whole), max_words=max_words, max_chars=20)
    for passage in passages:
        passage.text.encode()
        assert len(passage.text) <= 20
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", passage.text)


def test_blocks_are_gathered_and_the_last_cut_is_balanced():
    paragraphs = [Block(" ".join([name] * 6), line=place) for place, name in enumerate("abc", 1)]
    assert [(each.text, each.line) for each in _cut(*paragraphs, max_words=12)] == [
        ("a a a a a a\n\nb b b b b b", 1),
        ("c c c c c c", 3),
    ]
    sentences = Block("One two three four. " * 5 + "End.")
    assert [len(each.text.split()) for each in _cut(sentences, max_words=20)] == [12, 9]
    assert [len(each.text.split()) for each in _cut(Block("word " * 21), max_words=20)] == [11, 10]


def test_a_long_block_is_cut_at_paragraphs_sentences_lines_words_and_characters():
    assert [each.text for each in _cut(Block("One two three. Four\nfive.\n\nSix seven"), max_words=5)] == [
        "One two three. Four\nfive.", "Six seven",
    ]  # fmt: skip
    assert [each.text for each in _cut(Block("- one two\n- three four\n- five six"), max_words=6)] == [
        "- one two\n- three four", "- five six",
    ]  # fmt: skip
    assert [each.text for each in _cut(Block("x" * 101), max_chars=50)] == ["x" * 34, "x" * 34, "x" * 33]
    assert [each.text for each in _cut(Block("東京タワーは高い。駅も近い。"), max_words=5)] == [
        "東京タワーは高い。",
        "駅も近い。",
    ]


def test_rows_repeat_their_header_and_are_whole():
    header = "Name | Price"
    rows = [Block(f"Pump {n} | {n} EUR and more", n, is_whole=True, is_tight=n > 1, header=header) for n in (1, 2, 3)]
    cut = _cut(Block("All prices:"), *rows, max_words=22)
    assert [each.text for each in cut] == [
        f"All prices:\n\n{header}\nPump 1 | 1 EUR and more\nPump 2 | 2 EUR and more", f"{header}\n{rows[2].text}",
    ]  # fmt: skip
    long = replace(rows[0], text="cell " * 100)
    assert all(each.text.startswith(header) and len(each.text) <= 100 for each in _cut(long, max_chars=100))
    wide = [replace(row, header=f"{header} {'wide ' * 20}".strip()) for row in rows]
    assert "\n".join(each.text for each in _cut(*wide, max_chars=60)).count("Name") == 1


def test_code_is_cut_at_lines_only_above_the_bound_of_characters():
    code = "def f():\n" + "\n".join(f"    call({n})" for n in range(30))
    (passage,) = _cut(Block(code, is_whole=True), max_words=5)
    assert passage.text == code
    parts = [each.text for each in _cut(Block(code, is_whole=True), max_words=50, max_chars=100)]
    assert "\n".join(parts) == code
    assert [each.text for each in _cut(Block("Example:"), Block(code, is_whole=True), max_words=8)] == [
        f"Example:\n\n{code}"
    ]


def test_titles_ids_lines_and_links():
    links = (Link("a.md", line=5), Link("b.md", line=6), Link("c.md"))
    text = Block("One two three\nfour five.\nSix seven eight.", 5, links)
    sections = [
        Section("", (Block("Intro"),), line=1),
        Section("Guide", (Block("Text"),), line=2, anchors=("start", "guide")),
        Section("Empty"),
        Section("Set up: 2", (text,), line=4),
        Section("Set up 2", (Block("Again"),)),
        Section("", (Block("Page two"),)),
    ]
    passages = list(passages_of(_document(*sections, title=" Guide\0 "), max_words=5))
    assert [(each.id.removeprefix("docs/guide.md"), each.title, each.line) for each in passages] == [
        ("", "Guide", 1), ("#start", "Guide", 2), ("#set-up-2", "Guide > Set up: 2", 4),
        ("#set-up-2~2", "Guide > Set up: 2", 7), ("#set-up-2-1", "Guide > Set up 2", 0), ("#part-1", "Guide", 0),
    ]  # fmt: skip
    assert [link.target for link in passages[2].links] == ["c.md", "a.md", "b.md"]
    (passage,) = passages_of(_document(Section("h" * 2000, (Block("t"),)), title="t" * 2000), max_words=5)
    assert len(passage.title) == 2003


def test_long_texts_are_read_to_the_end():
    sections = [Section(str(n), tuple(Block("x", is_tight=True) for _ in range(2200))) for n in range(2)]
    assert len(list(passages_of(_document(*sections), max_words=100_000))) == 4
    for text in (
        "a. " * 10_000,
        "a" * 60_000,
        "\n" * 12_000 + "x",
        "a\n" * 10_000,
        "東" * 8_000,
        "a " * 12_000,
    ):
        for is_whole in (False, True):
            passages = _cut(Block(text.strip(), is_whole=is_whole), max_words=200)
            assert max(len(each.text) for each in passages) <= MAX_CHARS
