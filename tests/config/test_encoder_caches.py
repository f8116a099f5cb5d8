from pathlib import Path

from graphrerank.config.encoder_caches import EncoderCaches
from tests.support.encoders import HashEncoder


def test_equal_descriptions_give_one_encoder(tmp_path: Path) -> None:
    built: list[object] = []

    def build(description: object) -> HashEncoder:
        built.append(description)
        return HashEncoder()

    encoders = EncoderCaches(build)
    first = encoders.get({"model": "a"}, tmp_path)
    assert encoders.get({"model": "a"}, tmp_path) is first
    assert encoders.get({"model": "b"}, tmp_path) is not first
    assert built == [{"model": "a"}, {"model": "b"}]
    assert encoders.counts == {}
