import os

import pytest

from graphrerank import GraphReranker

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # it reports home

QUERY = "malware that spreads through USB sticks"
TEXTS = ["a cake recipe", "worm on removable drives", "infected USB sticks", "a phishing mail with malware"]


@pytest.fixture(scope="module")
def reranker():
    return GraphReranker.from_pretrained("attack")
