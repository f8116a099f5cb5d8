import os

import pytest

from graphrerank import GraphReranker

for name in ("HAYSTACK_TELEMETRY_ENABLED", "GRAPHITI_TELEMETRY_ENABLED"):
    os.environ[name] = "false"  # these tools report home
os.environ |= {  # read when cognee is imported: it reports home, looks for an endpoint, and has users
    "TELEMETRY_DISABLED": "true",
    "COGNEE_SKIP_CONNECTION_TEST": "true",
    "LLM_API_KEY": "none",
    "ENABLE_BACKEND_ACCESS_CONTROL": "false",
}

QUERY = "malware that spreads through USB sticks"
TEXTS = ["a cake recipe", "worm on removable drives", "infected USB sticks", "a phishing mail with malware"]


@pytest.fixture(scope="module")
def reranker():
    return GraphReranker.from_pretrained("attack")
