import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrerank.data.synthetic_queries.wording import QuestionWriter, clean, paragraphs

GUIDE = """# Caching

You can store the parsed pages in a local cache. A fixture is a function that prepares a test. The cache is slow because
disks are slow, and [the manual](../guide/cache.md#top) of `cache.get(1)` says more at https://example.org/a/b.

```python
secret = do_not_ask()
```
"""
FIXED = "Fixed the reader, which did not close the files that it opened, and added a cache for it."


def test_questions_of_a_guide() -> None:
    found = QuestionWriter("english", [GUIDE] * 3).wording("Reader manual > Local cache", GUIDE)
    assert found is not None
    assert found.name == "local cache"
    assert {"how do I store the parsed pages in a local cache", "what is fixture"} <= set(found.questions)
    assert "parsed pages" in found.phrases
    assert not re.search(r"secret|example|https|[/`(){}=#]|guide", " ".join([*found.questions, *found.phrases]))


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Changelog > 2.1.0", FIXED),
        ("pytest 7.4.1 (2023-09-02)", FIXED),
        ("Fixes", "- Close files (#123) by @ann\n- Add a cache (#124) by @bob\n- Say more in errors (#125) by @eve\n"),
        ("Terms", "Permission is hereby granted to any person to use this without warranty of any kind."),
        ("Team", "Ann Smith, Bob Miller, Eve Jones, Joe Brown, Sue White, Tom Green, Kim Black, Max Young, Ed Fox"),
        ("Sizes", "| a | 1 | 2 | 3 |\n|---|---|---|---|\n| b | 4 | 5 | 6 |\n| c | 7 | 8 | 9 |\n"),
        ("Data", "x = 1\ny = 2\nfor a in b:\n    c(a)\nprint(x)\nreturn y\n"),
        ("Menu", "- [Home](/)\n- [Guide](/guide)\n- [API](/api)\n- [Blog](/blog)\n"),
    ],
)
def test_what_nobody_asks_for(title: str, text: str) -> None:
    assert QuestionWriter("english").wording(title, text) is None


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        (
            'def parse_known_args(self):\n    """Parse the arguments of a command."""\n    return self.x\n',
            {
                "where is the parse known args function defined",
                "where is parse_known_args defined",
                "parse_known_args function",
                "which function parses the arguments of a command",
            },
        ),
        (
            "// Returns the size of a page\nfunc PageSize(p Page) int {\n\treturn p.size;\n}\n",
            {
                "where is the page size function defined",
                "where is PageSize defined",
                "PageSize function",
                "which function returns the size of a page",
            },
        ),
        (
            "class HTTPServer:\n    x = 1\n    y = 2\n",
            {"where is the http server class defined", "where is HTTPServer defined", "HTTPServer class"},
        ),
    ],
)
def test_questions_of_code(text: str, questions: set[str]) -> None:
    found = QuestionWriter("english").wording("src/reader.py", text)
    assert found is not None
    assert set(found.questions) == questions


@pytest.mark.parametrize(
    ("language", "text", "question", "phrase"),
    [
        (
            "german",
            "Sie können Ihre Dateien in einem Ordner speichern. Der Speicher des Lesers hält die Seiten, die er las.",
            "wie kann ich meine Dateien in einem Ordner speichern",
            "Lesers",
        ),
        (
            "french",
            "Vous pouvez enregistrer les pages dans un dossier. Le cache est un dossier qui garde les pages.",
            "comment enregistrer les pages dans un dossier",
            "pages",
        ),
    ],
)
def test_other_languages(language: str, text: str, question: str, phrase: str) -> None:
    found = QuestionWriter(language, [text]).wording("Manual", text)
    assert found is not None
    assert question in found.questions
    assert phrase in found.phrases


def test_chinese_questions_keep_a_negation() -> None:
    texts = ("这道菜需要提前腌制鸡肉。口感鲜嫩。", "这道菜不需要提前腌制鸡肉。口感鲜嫩。")
    asked, denied = (QuestionWriter("characters").wording("烤鸡 > 操作", text) for text in texts)
    assert asked is not None
    assert denied is not None
    assert "烤鸡需要提前腌制鸡肉吗" in asked.questions
    assert not denied.questions


@given(st.text(st.sampled_from("aB1 .,:;|`*_#[](){}<>-=/\\\"'\n\t@\u4e00\u00e9"), max_size=400))
def test_any_text(text: str) -> None:
    for language in ("english", "german", "characters", "none"):
        QuestionWriter(language, [text]).wording(text[:30], text)
    paragraphs(text)
    assert len(clean(text)) <= len(text) + 1
