"""Topics without a language model: clusters of entities, named by their distinctive words."""

from collections import Counter
from collections.abc import Sequence
from math import log

import numpy as np
import torch
from torch import Tensor

from graphrerank.text.languages import detect_language
from graphrerank_papers.knowledge.keywords import find_keywords

ENTITIES_PER_TOPIC = 10  # a smaller corpus has fewer topics


def cluster_entities(vectors: Tensor, *, num_topics: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cluster ``[E, d]`` unit vectors by k-means, the largest cluster first; a zero vector is in no cluster.

    There are at most ``num_topics`` clusters, and at most one per ten distinct vectors, but at least one.

    Returns:
        ``[T, d]`` unit vectors, and the cluster ``[E]`` of each entity, -1 for none.
    """
    from sklearn.cluster import KMeans

    label = torch.full((len(vectors),), -1, dtype=torch.int64)
    is_nonzero = vectors.abs().sum(dim=1) > 0 if len(vectors) else label >= 0
    rows = vectors[is_nonzero].numpy()
    num_distinct = len(np.unique(rows, axis=0))
    num_clusters = min(num_topics, max(1, num_distinct // ENTITIES_PER_TOPIC)) if num_distinct else 0
    if not num_clusters:
        return vectors.new_zeros(0, vectors.shape[1]), label
    clusters = KMeans(num_clusters, n_init=3, random_state=seed).fit(rows)
    order = np.argsort(-np.bincount(clusters.labels_, minlength=num_clusters), kind="stable")
    label[is_nonzero] = torch.from_numpy(np.argsort(order)[clusters.labels_])
    centres = torch.from_numpy(clusters.cluster_centers_[order]).float()
    return torch.nn.functional.normalize(centres, dim=1), label


def distinctive_words(groups: Sequence[Sequence[str]], *, num_words: int) -> list[list[str]]:
    r"""Find the words that distinguish each group of texts from the others, by class-based TF-IDF.

    .. math:: \mathrm{tf}_{w, g} \cdot \log \left(1 + \frac{A}{\mathrm{tf}_w}\right)

    with :math:`\mathrm{tf}` the number of texts that contain a word, and :math:`A` its mean sum over a group's words.

    Source: "BERTopic: Neural topic modeling with a class-based TF-IDF procedure", 2022, Eq. (2).
    """
    language = detect_language([text for texts in groups for text in texts])
    counts = [Counter(word for text in texts for word in find_keywords(text, language)) for texts in groups]
    total = sum(counts, Counter[str]())
    average = sum(total.values()) / max(1, len(groups))
    words = []
    for group in counts:
        weight = {word: count * log(1 + average / total[word]) for word, count in group.items()}
        words.append(sorted(weight, key=lambda word: (-weight[word], word))[:num_words])
    return words


def covering_threshold(similarity: Tensor, *, coverage: float) -> float:
    """Return the similarity that a share ``coverage`` of the texts reach with their nearest topic.

    ``similarity`` is ``[n, T]``; 1 without texts or topics.
    """
    if not similarity.numel():
        return 1.0
    best = similarity.max(dim=1).values.sort(descending=True).values
    return best[max(0, int(np.ceil(coverage * len(best))) - 1)].item()
