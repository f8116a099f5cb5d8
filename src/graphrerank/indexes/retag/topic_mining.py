"""Finding topics without a language model: clusters of entities, named by their telling words."""

from collections import Counter
from collections.abc import Sequence
from math import log

import numpy as np
import torch
from torch import Tensor

from graphrerank.text import find_keywords

ENTITIES_PER_TOPIC = 10  # a smaller corpus has fewer topics


def cluster_entities(vectors: Tensor, *, num_topics: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cluster entities by k-means, the largest cluster first.

    Args:
        vectors: ``[E, d]`` unit vectors; one of zeros is in no cluster.
        num_topics: Clusters at most; there are also no more than one for each ten different vectors, but one if there
            is any.
        seed: Same seed, same clusters.

    Returns:
        ``[T, d]`` unit vectors, and the cluster ``[E]`` of each entity, -1 for none.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
        >>> cluster_entities(vectors, num_topics=3)
        (tensor([[1., 0.]]), tensor([ 0, -1,  0]))
    """
    from sklearn.cluster import KMeans

    label = torch.full((len(vectors),), -1, dtype=torch.int64)
    told = vectors.abs().sum(dim=1) > 0 if len(vectors) else label >= 0
    rows = vectors[told].numpy()
    different = len(np.unique(rows, axis=0))
    count = min(num_topics, max(1, different // ENTITIES_PER_TOPIC)) if different else 0
    if not count:
        return vectors.new_zeros(0, vectors.shape[1]), label
    found = KMeans(count, n_init=3, random_state=seed).fit(rows)
    order = np.argsort(-np.bincount(found.labels_, minlength=count), kind="stable")
    label[told] = torch.from_numpy(np.argsort(order)[found.labels_])
    centres = torch.from_numpy(found.cluster_centers_[order]).float()
    return torch.nn.functional.normalize(centres, dim=1), label


def telling_words(groups: Sequence[Sequence[str]], *, num_words: int) -> list[list[str]]:
    r"""Find the words that tell each group of texts from the others, by class-based TF-IDF.

    .. math:: \mathrm{tf}_{w, g} \cdot \log \left(1 + \frac{A}{\mathrm{tf}_w}\right)

    with :math:`\mathrm{tf}` the number of texts that hold a word, and :math:`A` the mean of a group's sum of them.

    Source: "BERTopic: Neural topic modeling with a class-based TF-IDF procedure", 2022, Eq. (2).

    Args:
        groups: Texts of each of ``T`` groups.
        num_words: Words of each group at most; ties go to the word that sorts first.

    Example:
        >>> telling_words([["Metz fell", "Metz and Nancy"], ["Nancy rose", "a rose"]], num_words=1)
        [['metz'], ['rose']]
    """
    counts = [Counter(word for text in texts for word in find_keywords(text)) for texts in groups]
    total = sum(counts, Counter[str]())
    average = sum(total.values()) / max(1, len(groups))
    found = []
    for count in counts:
        weight = {word: times * log(1 + average / total[word]) for word, times in count.items()}
        found.append(sorted(weight, key=lambda word: (-weight[word], word))[:num_words])
    return found


def covering_threshold(similarity: Tensor, *, coverage: float) -> float:
    """Find the highest threshold that leaves a share of texts with a topic.

    Args:
        similarity: ``[n, T]``.
        coverage: The share, in (0, 1].

    Returns:
        The likeness that ``coverage`` of the texts reach with their nearest topic; 1 where there is no text or topic.

    Example:
        >>> covering_threshold(torch.tensor([[0.9, 0.1], [0.2, 0.7], [0.3, 0.0], [0.4, 0.5]]), coverage=0.75)
        0.5
    """
    if not similarity.numel():
        return 1.0
    best = similarity.max(dim=1).values.sort(descending=True).values
    return best[max(0, int(np.ceil(coverage * len(best))) - 1)].item()
