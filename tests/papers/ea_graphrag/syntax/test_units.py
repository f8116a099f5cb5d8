import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.ea_graphrag.syntax.units import RATIOS, Units, approximate_units, count_units, read_tree

# Counted by hand from Lu's definitions:                                W, S, VP, C, T, DC, CT, CP, CN
GOLD = {
    "statement": (
        "(ROOT (S (NP (DT The) (JJ big) (NN dog)) (VP (VBD barked) (PP (IN in) (NP (DT the) (NN garden)))) (. .)))",
        (7, 1, 1, 1, 1, 0, 0, 0, 1),  # the big dog
    ),
    "wh-question": (
        "(ROOT (SBARQ (WHNP (WDT Which) (NN film)) (SQ (VBD did) (NP (NP (DT the) (NN director)) (PP (IN of) "
        "(NP (NNP Jaws)))) (VP (VB make))) (. ?)))",
        (8, 1, 1, 1, 1, 0, 0, 0, 1),  # the director of Jaws
    ),
    "yes-no question without a verb phrase": (
        "(ROOT (SQ (VBZ Is) (NP (PRP he)) (NP (NP (DT the) (NN king)) (PP (IN of) (NP (NNP Spain)))) (. ?)))",
        (6, 1, 1, 1, 1, 0, 0, 0, 1),  # the king of Spain
    ),
    "fragment": (
        "(ROOT (FRAG (NP (WDT What) (DT a) (JJ lovely) (NN day)) (. !)))",
        (4, 1, 0, 1, 1, 0, 0, 0, 1),
    ),
    "fragment with a clause in it": (  # the clause is counted, and the fragment not once more; no T-unit but it
        "(ROOT (FRAG (SBAR (IN Because) (S (NP (PRP it)) (VP (VBD rained)))) (. .)))",
        (3, 1, 1, 1, 1, 1, 0, 0, 0),
    ),
    "bare noun phrase, as queries often are": (  # neither clause nor fragment
        "(ROOT (NP (NP (NNS Causes) (CC and) (NNS effects)) (PP (IN of) (NP (JJ global) (NN warming)))))",
        (6, 1, 0, 0, 0, 0, 0, 1, 2),
    ),
    "coordinate clauses": (
        "(ROOT (S (S (NP (NNP John)) (VP (VBD sang))) (CC and) (S (NP (NNP Mary)) (VP (VBD danced))) (. .)))",
        (5, 1, 2, 2, 2, 0, 0, 0, 0),
    ),
    "coordinate phrases": (
        "(ROOT (S (NP (NNP Tom) (CC and) (NNP Ann)) (VP (VP (VBD cooked)) (CC and) (VP (VBD ate) (NP (NN fish)))) "
        "(. .)))",
        (7, 1, 1, 1, 1, 0, 0, 2, 0),
    ),
    "relative clause": (
        "(ROOT (S (NP (NP (DT The) (NN book)) (SBAR (WHNP (WDT that)) (S (NP (PRP she)) (VP (VBD wrote))))) "
        "(VP (VBD won) (NP (DT a) (NN prize))) (. .)))",
        (8, 1, 2, 2, 1, 1, 1, 0, 1),  # the book that she wrote
    ),
    "adverbial and nominal clause": (
        "(ROOT (S (SBAR (IN If) (S (NP (PRP it)) (VP (VBZ rains)))) (, ,) (NP (PRP we)) (VP (VBP know) (SBAR "
        "(IN that) (S (NP (DT the) (NN game)) (VP (MD will) (VP (VB stop)))))) (. .)))",
        (10, 1, 3, 3, 1, 2, 1, 0, 1),  # that the game will stop
    ),
    "gerund as subject": (
        "(ROOT (S (S (VP (VBG Swimming) (PP (IN in) (NP (JJ cold) (NNS lakes))))) (VP (VBZ is) (ADJP (JJ fun) "
        "(CC and) (JJ healthy))) (. .)))",
        (8, 1, 2, 1, 1, 0, 0, 1, 2),  # cold lakes; swimming in cold lakes
    ),
    "infinitive as subject": (
        "(ROOT (S (S (VP (TO To) (VP (VB err)))) (VP (VBZ is) (ADJP (JJ human))) (. .)))",
        (4, 1, 2, 1, 1, 0, 0, 0, 1),
    ),
    "imperative": (
        "(ROOT (S (VP (VB Compare) (NP (DT the) (CD two) (NNS plans))) (. .)))",
        (4, 1, 1, 1, 1, 0, 0, 0, 0),
    ),
    "apposition and possessive": (
        "(ROOT (S (NP (NP (NNP Poe)) (, ,) (NP (DT the) (NN writer)) (, ,)) (VP (VBD sold) (NP (NP (NNP John) "
        "(POS 's)) (NN house))) (. .)))",
        (7, 1, 1, 1, 1, 0, 0, 0, 2),
    ),
    "coordinate noun phrases are no apposition": (
        "(ROOT (S (NP (NP (DT a) (NN cat)) (CC and) (NP (DT a) (NN dog))) (VP (VBD slept)) (. .)))",
        (6, 1, 1, 1, 1, 0, 0, 1, 0),
    ),
    "inversion": (
        "(ROOT (SINV (ADVP (RB Never)) (VBP have) (NP (PRP I)) (VP (VBN seen) (NP (PRP it))) (. .)))",
        (5, 1, 1, 1, 1, 0, 0, 0, 0),
    ),
    "wh-clause as subject": (
        "(ROOT (S (SBAR (WHNP (WP What)) (S (NP (PRP he)) (VP (VBD said)))) (VP (VBZ is) (ADJP (JJ true))) (. .)))",
        (5, 1, 2, 2, 1, 1, 1, 0, 1),
    ),
    "the same where a treebank says NP": (
        "(ROOT (S (SBAR (NP (WP What)) (S (NP-SBJ (PRP he)) (VP (VBD said)))) (VP (VBZ is) (ADJP (JJ true))) (. .)))",
        (5, 1, 2, 2, 1, 1, 1, 0, 1),
    ),
    "object clause without that": (
        "(ROOT (S (NP (PRP I)) (VP (VBP think) (SBAR (S (NP (PRP he)) (VP (VBZ sleeps))))) (. .)))",
        (4, 1, 2, 2, 1, 1, 1, 0, 1),
    ),
    "indirect question with how": (  # no nominal clause by the pattern: its head is an adverb
        "(ROOT (S (NP (PRP I)) (VP (VBP know) (SBAR (WHADVP (WRB how)) (S (NP (PRP it)) (VP (VBZ works))))) (. .)))",
        (5, 1, 2, 2, 1, 1, 1, 0, 0),
    ),
    "two clauses, the second complex": (  # the first T-unit is the whole, and complex for it
        "(ROOT (S (S (NP (PRP He)) (VP (VBD left))) (, ,) (CC and) (S (NP (PRP we)) (VP (VBD cried) (SBAR (IN when) "
        "(S (NP (PRP it)) (VP (VBD rained)))))) (. .)))",
        (8, 1, 3, 3, 2, 1, 2, 0, 0),
    ),
    "hyphens and signs are no words": (
        "(ROOT (NP (ADJP (NN well) (HYPH -) (VBN known)) (NN name) (SYM =) (-LRB- -LRB-) (CD 1) (-RRB- -RRB-)))",
        (4, 1, 0, 0, 0, 0, 0, 0, 0),
    ),
}


@pytest.mark.parametrize("kind", sorted(GOLD))
def test_against_counts_by_hand(kind: str) -> None:
    tree, expected = GOLD[kind]
    assert count_units([read_tree(tree)]) == Units(*expected)


def test_a_text_is_the_sum_of_its_sentences() -> None:
    trees = [read_tree(tree) for tree, _ in GOLD.values()]
    assert count_units(trees) == Units(*map(sum, zip(*(counts for _, counts in GOLD.values()), strict=True)))
    assert count_units([]) == Units(0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_ratios_by_hand() -> None:
    ratios = Units(W=24, S=2, VP=5, C=4, T=3, DC=1, CT=1, CP=2, CN=6).ratios()
    assert list(ratios) == list(RATIOS)
    assert ratios == pytest.approx(
        {
            "MLS": 12, "MLT": 8, "MLC": 6, "C/S": 2, "VP/T": 5 / 3, "C/T": 4 / 3, "DC/C": 1 / 4, "DC/T": 1 / 3,
            "T/S": 3 / 2, "CT/T": 1 / 3, "CP/T": 2 / 3, "CP/C": 1 / 2, "CN/T": 2, "CN/C": 3 / 2,
        }
    )  # fmt: skip
    nothing = Units(W=3, S=1, VP=0, C=0, T=0, DC=0, CT=0, CP=1, CN=1).ratios()
    assert {name for name, ratio in nothing.items() if ratio} == {"MLS"}  # a divisor of 0 gives 0


def test_laws_on_gum(datasets: Path) -> None:
    lines = (datasets / "treebank_gum" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        units = count_units([read_tree(json.loads(line)["tree"])])
        assert units.S == 1
        assert units.T >= units.CT
        assert (units.CT > 0) <= (units.DC > 0)
        assert units.DC <= units.C


def test_a_tree_is_read_as_written() -> None:
    tree = read_tree("(ROOT (SBARQ (WHNP-1 (WP Who)) (SQ (VP (VBD won))) (. ?)))")
    assert [node.label for node in tree.nodes()] == ["ROOT", "SBARQ", "WHNP", "WP", "SQ", "VP", "VBD", "."]
    assert [leaf.word for leaf in tree.leaves()] == ["Who", "won", "?"]
    first, *others = tree.children[0].children
    assert first.following() == others
    labels = {"NP-SBJ-1": "NP", "NP=2": "NP", "-LRB-": "-LRB-", "PRP$": "PRP$", "S|X": "S"}  # function tags are dropped
    assert {tag: read_tree(f"(ROOT ({tag} word))").children[0].label for tag in labels} == labels
    deep = read_tree("(S " * 5000 + "(NN x)" + ")" * 5000)  # deeper than Python's stack
    assert sum(1 for _ in deep.nodes()) == 5001


@pytest.mark.parametrize(
    ("trouble", "texts"),
    [
        ("0 unclosed brackets, or text outside", ["", "(ROOT (NN a)) (ROOT (NN b))", "word", "(ROOT (NN a)))"]),
        ("2 unclosed brackets", ["(ROOT (S"]),
        ("neither a word nor a phrase", ["(ROOT)", "(ROOT (NN a b))", "(ROOT (NN a) b)", "(ROOT a (NN b))"]),
        ("neither a word nor a phrase", ["(ROOT ((NN b)))", "(ROOT ())"]),  # without label
    ],
)
def test_what_is_no_tree_is_refused(trouble: str, texts: list[str]) -> None:
    for brackets in texts:
        with pytest.raises(ValueError, match=trouble):
            read_tree(brackets)


# Counted by hand by the same definitions as above: W, S, VP, C, T, DC, CT, CP, CN
ESTIMATED = {
    "The big dog slept in the garden.": (7, 1, 1, 1, 1, 0, 0, 0, 1),
    "Which film did the director of Jaws make?": (8, 1, 1, 1, 1, 0, 0, 0, 1),
    "Is he the king of Spain?": (6, 1, 1, 1, 1, 0, 0, 0, 1),
    "The effects of global warming": (5, 1, 0, 0, 0, 0, 0, 0, 2),
    "John sang and Mary danced.": (5, 1, 2, 2, 2, 0, 0, 0, 0),
    "Tom and Ann cooked and ate fish.": (7, 1, 1, 1, 1, 0, 0, 2, 0),
    "The book that she wrote won a prize.": (8, 1, 2, 2, 1, 1, 1, 0, 1),
    "If it rains, we know that the game will stop.": (10, 1, 3, 3, 1, 2, 1, 0, 1),
    "Compare the two plans.": (4, 1, 1, 1, 1, 0, 0, 0, 0),
    "I think he sleeps. We left.": (6, 2, 3, 3, 2, 1, 1, 0, 1),
    "He wants to read the book.": (6, 1, 2, 1, 1, 0, 0, 0, 0),
    "The story told by her was long.": (7, 1, 1, 1, 1, 0, 0, 0, 1),
    "  \n ": (0, 0, 0, 0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("text", ESTIMATED)
def test_estimates_against_counts_by_hand(text: str, nlp: Any) -> None:
    assert approximate_units(nlp(text)) == Units(*ESTIMATED[text])


def test_estimates_against_gold_trees_of_gum(datasets: Path, nlp: Any) -> None:
    from spacy.tokens import Doc

    lines = (datasets / "treebank_gum" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    trees = [read_tree(row["tree"]) for row in map(json.loads, lines) if not row["nc"]][::10]
    written = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]"}  # as the text has it, not the treebank
    texts = [[written.get(str(leaf.word), str(leaf.word)) for leaf in tree.leaves()] for tree in trees]
    documents = nlp.pipe(Doc(nlp.vocab, words=words) for words in texts)
    found, gold = list(map(approximate_units, documents)), [count_units([tree]) for tree in trees]
    limits = {"W": 0.1, "VP": 0.25, "C": 0.25, "T": 0.25, "DC": 0.2, "CT": 0.15, "CP": 0.15, "CN": 0.5}
    for unit, limit in limits.items():
        errors = [abs(getattr(a, unit) - getattr(b, unit)) for a, b in zip(found, gold, strict=True)]
        assert statistics.mean(errors) < limit
