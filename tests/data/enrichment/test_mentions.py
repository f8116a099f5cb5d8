import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from graphrerank.data.enrichment import mentions
from graphrerank.data.enrichment.mentions import MIN_COMMON, find_mentions, split_words


def pairs(titles: list[str], texts: list[str]) -> list[tuple[int, ...]]:
    return [tuple(pair) for pair in find_mentions(titles, texts).tolist()]


def naive(titles: list[str], texts: list[str]) -> set[tuple[int, int]]:
    """Every title against every text by a regular expression with word boundaries; longest matches win."""
    found = set()
    counts = Counter(title.lower() for title in titles)
    for source, text in enumerate(texts):
        spans = []
        for node, title in enumerate(titles):
            for match in re.finditer(rf"(?=\b({re.escape(title)})\b)", text, re.IGNORECASE):
                words, written = title.split(), match[1].split()
                if all(
                    not w[0].isupper() or v[0].isupper() for w, v in ((words[0], written[0]), (words[-1], written[-1]))
                ):
                    spans.append((match.start(1), match.end(1), node))
        for start, stop, node in spans:
            inside = any(a <= start and stop <= b and b - a > stop - start for a, b, _ in spans)
            if not inside and node != source and counts[titles[node].lower()] == 1:
                found.add((source, node))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_against_naive_regex_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, threshold in (("MAX_OWNERS", 1), ("MAX_MENTION_SHARE", 1.0), ("MIN_CHARACTERS", 1)):
        monkeypatch.setattr(mentions, name, threshold)
    draw = random.Random(seed)
    words = ["Red", "red", "Green", "blue", "Sea", "of", "York", "New"]
    titles = list(dict.fromkeys(" ".join(draw.choices(words, k=draw.randint(1, 3))) for _ in range(40)))
    texts = [" ".join(draw.choices([*words, "x", "Reds", "redsea", "y."], k=30)) for _ in titles]
    found = pairs(titles, texts)
    assert set(found) == naive(titles, texts)
    assert found == sorted(set(found))
    assert len(found) > 20


@pytest.mark.parametrize(
    ("title", "text", "mentioned"),
    [
        ("Lothair II", "married to Lothair II.", True),
        ("Lothair II", "married to Lothair III.", False),
        ("Metz", "near Metzingen", False),
        ("Marie-Louise", "Marie- Louise reigned", True),
        ("A J Mintu", "directed by A. J. Mintu", True),
        ("Alû (demon)", "related to Alu, a demon", True),
        ("Tom &amp; Co", "with Tom & Co in it", True),
        ("DJ Mam's", "a song by DJ Mam's in Spanish", True),
        ("Laila Majnu (1976 film)", "starred in Laila Majnu", True),
        ("West of Shanghai", "of film West Of Shanghai", True),
        ("Party", "went to a party", False),
        ("party", "the Party of Europe", True),
        ("1984", "in 1984", False),
        ("Maria Komnene, Queen of Jerusalem", "the dowager Maria Komnene", True),
        ("London, Ontario", "went to London", False),
        ("北京", "他住在北京市", True),
        ("", "anything", False),
        ("It", "where It is", False),
    ],
)
def test_what_counts_as_a_mention(title: str, text: str, mentioned: bool) -> None:
    assert pairs([title, ""], ["", text]) == ([(1, 0)] if mentioned else [])


@pytest.mark.parametrize(
    ("titles", "texts", "expected"),
    [
        (["York", "New York", "a"], ["", "", "New York, not York"], [(2, 0), (2, 1)]),
        (["York", "New York", "a"], ["", "", "in New York"], [(2, 1)]),  # the longest one
        (["Arcade Fire", "Arcade Fire (album)", "a"], ["", "", "by Arcade Fire"], [(2, 0)]),  # the strongest one
        (["Arcade Fire (album)", "a"], ["", "by Arcade Fire"], [(1, 0)]),
        (["Hunger (film)", "Hunger (novel)", "a"], ["", "", "read Hunger"], [(2, 0), (2, 1)]),
        (["H. S. Rawail", "a"], ["Harnam Singh Rawail (born 1921) was.", "by Harnam Singh Rawail"], [(1, 0)]),
        (["Another", "a"], ["Harnam Singh Rawail (born 1921) was.", "by Harnam Singh Rawail"], []),  # no common word
        ([], [], []),
        (["", ""], ["a", "b"], []),
    ],
)
def test_which_of_several_names_is_mentioned(titles: list[str], texts: list[str], expected: list[object]) -> None:
    assert pairs(titles, texts) == expected
    assert find_mentions(titles, texts).shape == (len(expected), 2)


def test_names_of_more_owners_than_one_may_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mentions, "MAX_OWNERS", 1)
    assert pairs(["York", "New York (state)", "New York (city)", "a"], ["", "", "", "in New York"]) == []
    assert pairs(["Hunger (film)", "Hunger (novel)", "a"], ["", "", "read Hunger"]) == []
    assert split_words("Ünïted_States, d'Ibelin") == ["United", "States", "d", "Ibelin"]
    with pytest.raises(ValueError, match="one entry per passage, got 1 titles and 0 texts"):
        find_mentions(["a"], [])


def test_too_common_names_are_dropped() -> None:
    titles = ["Canada", *(f"t{i}" for i in range(99))]
    texts = ["", *("in Canada" if i <= MIN_COMMON else "far away" for i in range(99))]
    found = find_mentions(titles, texts)
    assert found.tolist() == []
    texts[1] = ""
    assert len(pairs(titles, texts)) == MIN_COMMON


@pytest.mark.parametrize("name", ["2wikimultihopqa_train", "hotpotqa"])
def test_real_edges_link_relevant_passages_as_the_ready_made_ones_do(datasets: Path, name: str) -> None:
    """On training questions: pairs of relevant passages joined, and agreement with ``edges_computed.tsv``."""
    rows = [json.loads(line) for line in (datasets / name / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    number = {row["_id"]: i for i, row in enumerate(rows)}

    def table(path: str) -> list[list[str]]:
        return [line.split("\t") for line in (datasets / name / path).read_text(encoding="utf-8").splitlines()[1:]]

    ready = {tuple(sorted((number[row[0]], number[row[1]]))) for row in table("edges_computed.tsv")}
    edges = find_mentions([row["title"] for row in rows], [row["text"] for row in rows])
    ours = {tuple(sorted(pair)) for pair in edges.tolist()}
    relevant: dict[str, list[int]] = {}
    for query, passage, _ in table("qrels/train.tsv"):
        relevant.setdefault(query, []).append(number[passage])
    wanted = {(min(a, b), max(a, b)) for nodes in relevant.values() for a in nodes for b in nodes if a != b}
    assert len(wanted & ours) >= len(wanted & ready)
    assert len(ours & ready) / len(ours) > 0.8
    assert len(ours) < 1.2 * len(ready)
