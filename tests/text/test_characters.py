from graphrerank.text.characters import whole_characters


def test_halves_are_replaced_and_pairs_joined() -> None:
    assert whole_characters("a \ud83d b") == "a \N{REPLACEMENT CHARACTER} b"
    assert whole_characters("\ud83d\ude00 é") == "\N{GRINNING FACE} é"
    assert whole_characters("") == ""
