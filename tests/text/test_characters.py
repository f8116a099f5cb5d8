from graphrerank.features.word_table import WordTable
from graphrerank.operators.bm25 import BM25
from graphrerank.text import words
from graphrerank.text.characters import matched_form, whole_characters
from graphrerank.text.languages import language_of


def test_halves_are_replaced_and_pairs_joined() -> None:
    assert whole_characters("a \ud83d b") == "a \N{REPLACEMENT CHARACTER} b"
    assert whole_characters("\ud83d\ude00 é") == "\N{GRINNING FACE} é"
    assert whole_characters("") == ""


def test_words_match_in_every_form_of_a_character() -> None:
    table = WordTable()
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in "ABC123")
    forms = ["Zürich ABC123 find 東京タワー", f"Zu\u0308rich {wide} \ufb01nd 東京\uff80\uff9c\uff70"]
    for name in ("english", "german", "none", "characters"):
        first, second = (language_of(name).tokens(text) for text in forms)
        assert first == second
        assert words(forms[0], name) == words(forms[1], name)
    assert (BM25(forms).score_all([forms[0]]).diff() == 0).all()
    first, second = table.entries(forms)
    assert first.tokens.tolist() == second.tokens.tolist()
    assert first.stems.tolist() == second.stems.tolist()
    assert matched_form(plain := "plain text") is plain
