import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.ea_graphrag.syntax.stanza_parser import StanzaParser
from graphrerank_papers.ea_graphrag.syntax.tree import Tree, read_tree
from graphrerank_papers.ea_graphrag.syntax.units import count_units

TRAINED = (
    "(ROOT (S (NP (DT The) (JJ old) (NN cat)) (VP (VBD slept) (PP (IN in) (NP (DT the) (NN house)))) (. .)))",
    "(ROOT (S (NP (PRP We)) (VP (VBP know) (SBAR (IN that) (S (NP (DT the) (NN dog)) (VP (VBD slept))))) (. .)))",
    "(ROOT (SBARQ (WHNP (WP Who)) (SQ (VP (VBD saw) (NP (DT the) (NN dog)))) (. ?)))",
)


def brackets(tree: Tree) -> str:
    inside = tree.word if tree.word is not None else " ".join(map(brackets, tree.children))
    return f"({tree.label} {inside})"


@pytest.mark.slow
def test_a_model_trained_here_gives_its_trees_back(tiny_stanza: Path, nlp: Any) -> None:
    parser = StanzaParser(tiny_stanza)
    documents = [nlp.tagged(tree) for tree in TRAINED]
    assert [[brackets(tree) for tree in trees] for trees in parser.parse(documents)] == [[tree] for tree in TRAINED]
    assert parser.count(documents) == [count_units([read_tree(tree)]) for tree in TRAINED]


@pytest.mark.slow
def test_fingerprint_changes_with_the_model(tiny_stanza: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_stanza, tmp_path / "copy")
    same = StanzaParser(copy).fingerprint
    assert same == StanzaParser(tiny_stanza).fingerprint
    with (copy / "vectors.pt").open("ab") as file:
        file.write(b"!")
    assert StanzaParser(copy).fingerprint != same


def test_against_counts_by_hand_with_a_real_model(stanza_en: Path, nlp: Any) -> None:
    documents = [
        nlp("Which film did he make?"),
        nlp(""),
        nlp("He works, but she sleeps. The book which she wrote in 1990 won a prize."),
        nlp("If it rains, we know that the game will stop."),
        nlp("Compare the two plans."),
    ]
    parser = StanzaParser(stanza_en)
    assert [len(trees) for trees in parser.parse(documents)] == [1, 0, 2, 1, 1]
    assert parser.count(documents) == [  # W, S, VP, C, T, DC, CT, CP, CN
        (5, 1, 1, 1, 1, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0, 0, 0),
        (15, 2, 4, 4, 3, 1, 1, 0, 1),
        (10, 1, 3, 3, 1, 2, 1, 0, 1),
        (4, 1, 1, 1, 1, 0, 0, 0, 0),
    ]
    assert parser.count(documents[::-1]) == parser.count(documents)[::-1]


def test_brackets_and_unknown_tags_are_tokens_like_others(stanza_en: Path, nlp: Any) -> None:
    document = nlp("The film (a comedy) costs 5 $ ... データ")
    trees = StanzaParser(stanza_en).parse([document])[0]
    assert [leaf.word for tree in trees for leaf in tree.leaves()] == [token.text for token in document]


def test_no_text_loads_no_model(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    assert StanzaParser(tmp_path).parse([]) == []


def test_folders_that_hold_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`folder` must contain en/ .* got .* with \[\]"):
        StanzaParser(tmp_path)
    for name in ("my_constituency.pt", "vectors.pt"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"resources\.json \(.*vectors\.pt"):
        StanzaParser(tmp_path)
    (tmp_path / "resources.json").write_text(json.dumps({"en": {"lang_name": "English", "packages": {}}}))
    with pytest.raises(ValueError, match="`download` must be false"):
        StanzaParser(tmp_path, download=True)


def test_a_model_that_is_not_there_is_named(tmp_path: Path, nlp: Any) -> None:
    pytest.importorskip("stanza")
    (tmp_path / "en").mkdir()  # as if Stanza's, but nothing was downloaded
    with pytest.raises(ValueError, match="allow its download, give the folder of a model, or choose syntax=dependency"):
        StanzaParser(tmp_path).parse([nlp("One sentence.")])


def test_a_damaged_model_is_named(tmp_path: Path, nlp: Any) -> None:
    pytest.importorskip("stanza")
    for name in ("my_constituency.pt", "vectors.pt"):
        (tmp_path / name).write_bytes(b"no model")
    (tmp_path / "resources.json").write_text(json.dumps({"en": {"lang_name": "English", "packages": {}}}))
    with pytest.raises(ValueError, match=str(tmp_path)):
        StanzaParser(tmp_path).parse([nlp("One sentence.")])


def test_without_stanza_the_package_is_named(tmp_path: Path, nlp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "en").mkdir()
    for name in ("stanza", "stanza.models.common.doc", "stanza.pipeline.core"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"pip install 'graphrerank\[syntax\]'"):
        StanzaParser(tmp_path).parse([nlp("One sentence.")])
