import pytest

from graphrerank_papers.ea_graphrag.syntax.tree import Tree, read_tree

QUESTION = "(ROOT (SBARQ (WHNP-1 (WP Who)) (SQ (VP (VBD won))) (. ?)))"


def test_a_tree_is_read_as_written() -> None:
    tree = read_tree(QUESTION)
    assert [node.label for node in tree.nodes()] == ["ROOT", "SBARQ", "WHNP", "WP", "SQ", "VP", "VBD", "."]
    assert [leaf.word for leaf in tree.leaves()] == ["Who", "won", "?"]
    question = tree.children[0]
    assert [node.label for node in question.below()] == ["WHNP", "WP", "SQ", "VP", "VBD", "."]
    verb = question.children[1].children[0].children[0]
    assert [node.label for node in verb.ancestors()] == ["VP", "SQ", "SBARQ", "ROOT"]
    assert question.children[0].next_sister() is question.children[1]
    assert question.children[2].next_sister() is None
    assert tree.next_sister() is None


@pytest.mark.parametrize(
    ("written", "label"), [("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("-LRB-", "-LRB-"), ("PRP$", "PRP$"), ("S|X", "S")]
)
def test_function_tags_are_dropped(written: str, label: str) -> None:
    assert read_tree(f"(ROOT ({written} word))").children[0].label == label


def test_penns_unlabelled_root() -> None:
    assert read_tree("( (S (VP (VB Go))))").label == "ROOT"


def test_brackets_as_words() -> None:
    words = [leaf.word for leaf in read_tree("(ROOT (PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-)))").leaves()]
    assert words == ["-LRB-", "x", "-RRB-"]


@pytest.mark.parametrize(
    ("brackets", "trouble"),
    [
        ("", "0 brackets left open"),
        ("(ROOT (S", "2 brackets left open"),
        ("(ROOT (NN a)) (ROOT (NN b))", "outside"),
        ("word", "outside"),
        ("(ROOT)", "without word or phrase"),
        ("(ROOT (NN a b))", "second word 'b'"),
        ("(ROOT (NN a) b)", "second word 'b'"),
        ("(ROOT a (NN b))", "'a' beside a phrase"),
        ("(ROOT ((NN b)))", "inner bracket without label"),
    ],
)
def test_what_is_no_tree_is_refused(brackets: str, trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        read_tree(brackets)


@pytest.mark.parametrize(
    ("phrase", "head"),
    [
        ("(VP (MD will) (VP (VB go)))", "MD"),
        ("(VP (VBZ is) (VBN done))", "VBN"),  # by Collins's order, not by place
        ("(VP (TO to) (VP (VB go)))", "TO"),
        ("(SQ (MD Can) (NP (PRP he)) (VP (VB go)))", "MD"),
        ("(SBAR (WHNP (WP who)) (S (VP (VBD won))))", "WHNP"),
        ("(S (NP (PRP He)) (VP (VBD won)))", "VP"),
        ("(NP (DT a) (NN cat))", "DT"),  # no rule: the first child
    ],
)
def test_heads_by_collins_rules(phrase: str, head: str) -> None:
    found = read_tree(phrase).head()
    assert found is not None
    assert found.label == head


def test_a_tree_deeper_than_pythons_stack() -> None:
    deep = read_tree("(S " * 5000 + "(NN x)" + ")" * 5000)
    assert sum(1 for _ in deep.nodes()) == 5001


def test_a_leaf_has_no_head() -> None:
    assert Tree("NN", (), "x").head() is None
