import random

from graphrerank.data.synthetic_queries.rewording import Rewording
from graphrerank.data.synthetic_queries.wording import QuestionWriter

TEXTS = ["The global interpreter lock (GIL) protects objects. A cache holds parsed pages; caches are files."]


def reworded(text: str, *, language: str = "english", texts: list[str] = TEXTS, count: int = 200) -> set[str]:
    words = {word.strip("().,;") for page in texts for word in page.lower().split()}
    rewording = Rewording(language, texts, words, QuestionWriter(language, texts))
    rng = random.Random(0)
    found = {rewording(text, rng) for _ in range(count)}
    rng = random.Random(0)
    assert found == {rewording(text, rng) for _ in range(count)}
    return found


def test_each_change() -> None:
    found = reworded("how do I remove the pages of a cache")
    assert any("delete" in text for text in found)  # a synonym
    assert any("caches" in text for text in found)  # another form in the corpus
    assert any("the" not in text.split() for text in found)  # left out
    assert any("global interpreter lock" in text for text in reworded("objects that the GIL protects"))
    assert any("GIL" in text for text in reworded("what the global interpreter lock protects"))
    assert any("read json file" in text for text in reworded("where is readJsonFile"))
    assert any("protects" not in text for text in reworded("object protects"))  # a typing error
    assert reworded("xyz") == {"xyz"}


def test_without_spaces_and_without_a_list() -> None:
    assert any("番茄" in text for text in reworded("西红柿怎么做", language="characters", texts=["西红柿炒鸡蛋"]))
    assert reworded("ab cd", language="none") == {"ab cd"}
