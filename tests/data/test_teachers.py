"""Scores of teachers against the files and the cross-encoder that they come from."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.data.teachers import CrossEncoderTeacher, RunTeacher, SoftLabelTeacher, Teacher
from graphrerank.data.vector_cache import PairCache
from tests.support.encoders import HashPairEncoder
from tests.support.folders import Write

NAN = torch.nan
QUERIES = torch.tensor([2, 0])  # q3, which is in no split, and q1


@pytest.fixture
def prepared(write_folder: Write) -> PreparedDataset:
    """The passages a, b, c and 'd d', and candidates of q1, q2 and q3."""
    dataset = Dataset.from_folder(write_folder())
    nodes = torch.tensor([[0, 1, 3], [2, 3, -1], [3, 2, 0]])
    return PreparedDataset(dataset, None, Ranking(nodes, torch.zeros(3, 3), torch.zeros(3, 3, 1)), ("base_score",))


def scores_of(teacher: Teacher, prepared: PreparedDataset) -> list[list[float | None]]:
    rows = teacher.score(prepared, QUERIES).tolist()
    return [[None if score != score else round(score, 4) for score in row] for row in rows]


def write_run(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_cross_encoder_against_its_logits(prepared: PreparedDataset, tmp_path: Path) -> None:
    encoder = HashPairEncoder()
    texts, passages = prepared.dataset.query_texts, prepared.dataset.graph.texts
    pairs = [(2, 3), (2, 2), (0, 0), (0, 1)]
    logits = encoder.head(encoder.encode([texts[q] for q, _ in pairs], [passages[n] for _, n in pairs]))
    for wrapped in (encoder, PairCache(encoder, tmp_path)):
        scores = CrossEncoderTeacher(pair_encoder=wrapped, top_k=2).score(prepared, QUERIES)
        assert torch.equal(scores[:, :2].flatten(), logits)
        assert scores[:, 2].isnan().all()
    every = CrossEncoderTeacher(pair_encoder=encoder, top_k=None).score(prepared, torch.arange(3))
    assert every.isnan().tolist() == (prepared.ranking.nodes < 0).tolist()


def test_run_against_its_lines(prepared: PreparedDataset, tmp_path: Path) -> None:
    text = "q1 Q0 d d 1 7.5 t\nq1 Q0 a 2 -1 t\nq1 Q0 c 3 -2 t\nq3 Q0 a 1 0.25 t\nelsewhere Q0 a 1 3 t\n"
    run = write_run(tmp_path / "teacher.trec", text)
    expected = [[None, None, 0.25], [-1.0, None, 7.5]]
    assert scores_of(RunTeacher(path=run), prepared) == expected
    assert scores_of(RunTeacher(path={"small": run, "other": "nowhere.trec"}), prepared) == expected


def test_soft_labels_against_their_rows(prepared: PreparedDataset, write_folder: Write, tmp_path: Path) -> None:
    rows = [
        "query-id\tcorpus-id\tscore\tnote\tsoft",
        "q1\ta\t1\tx\t0.9",
        "q1\td d\t\t\t-0.5",
        "q3\tc\t0\t\t",
        "q3\ta\t\t\t2",
    ]
    folder = write_folder(tmp_path / "soft", train="\n".join(rows), test=None)
    expected = [[None, None, 2.0], [0.9, None, -0.5]]
    for path in (folder, folder / "qrels" / "train.tsv", {"small": folder}):
        assert scores_of(SoftLabelTeacher(path=path, column="soft"), prepared) == expected


def test_judgements_with_soft_labels_are_read_as_before(write_folder: Write, tmp_path: Path) -> None:
    rows = ["query-id\tcorpus-id\tscore\tsoft", "q1\ta\t1\t0.9", "q1\tb\t\t0.8", "q2\tc\t0\t0.7"]
    dataset = Dataset.from_folder(write_folder(tmp_path / "soft", train="\n".join(rows), test=None))
    qrels = dataset.split("train")
    assert list(zip(qrels.query.tolist(), qrels.node.tolist(), qrels.gain.tolist(), strict=True)) == [(0, 0, 1.0)]


def test_a_file_of_soft_labels_alone_is_no_split(write_folder: Write, tmp_path: Path) -> None:
    rows = "query-id\tcorpus-id\tscore\tsoft\nq1\ta\t\t0.9\nq1\tb\t\t0.1"
    folder = write_folder(tmp_path / "soft", train=rows, test=[("q2", "c")])
    dataset = Dataset.from_folder(folder)
    assert (list(dataset.splits), dataset.query_ids) == (["test"], ["q1", "q2", "q3"])
    with pytest.raises(ValueError, match=r"split 'train' of .* has no queries"):
        Dataset.from_folder(folder, splits=["train", "test"])


def test_fingerprints_change_with_the_scores(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{number}.trec", f"q1 Q0 a 1 {number} t\n") for number in range(2)]
    teachers: list[Teacher] = [RunTeacher(path=run) for run in runs]
    teachers += [CrossEncoderTeacher(pair_encoder=HashPairEncoder(fingerprint=name)) for name in "xy"]
    teachers += [CrossEncoderTeacher(pair_encoder=HashPairEncoder(fingerprint="x"), top_k=5)]
    assert len({teacher.fingerprint for teacher in teachers}) == 5
    assert replace(teachers[0]).fingerprint == teachers[0].fingerprint


SOFT = "query-id\tcorpus-id\tscore\tsoft\n"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("query-id\tcorpus-id\tscore\nq1\ta\t1", r"train\.tsv: expected a header with the column 'soft', such as"),
        (f"{SOFT}q1\ta\t1\thigh", r"train\.tsv, line 2: expected a number or a blank in column 'soft', got 'high'"),
        (f"{SOFT}q1\tz\t1\t0.5", r"train\.tsv, line 2: expected an id of the corpus \(or `drop_unknown`\), got 'z'"),
        (f"{SOFT}q1\ta\t1\t0.5\nq1\ta\t1\t0.6", r"train\.tsv, line 3: expected one soft label per query and document"),
        (f"{SOFT}q1\ta\t1", r"train\.tsv, line 2: expected 4 tab-separated columns"),
    ],
)
def test_soft_labels_refuse(rows: str, message: str, prepared: PreparedDataset, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(rows)
    with pytest.raises(ValueError, match=message):
        SoftLabelTeacher(path=tmp_path / "train.tsv", column="soft").score(prepared, QUERIES)


def test_unknown_documents_are_skipped_on_request(prepared: PreparedDataset, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(f"{SOFT}q1\tz\t1\t0.5\nq1\ta\t1\t0.5\n")
    teacher = SoftLabelTeacher(path=tmp_path / "train.tsv", column="soft", drop_unknown=True)
    with pytest.warns(UserWarning, match="skipped 1 x id not in the corpus"):
        assert scores_of(teacher, prepared) == [[None, None, None], [0.5, None, None]]


def test_a_folder_without_the_column_is_refused(prepared: PreparedDataset, write_folder: Write) -> None:
    teacher = SoftLabelTeacher(path=write_folder())
    with pytest.raises(ValueError, match="expected a file of judgements with the column 'teacher', got none"):
        teacher.score(prepared, QUERIES)


def test_a_data_set_without_a_path_is_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match=r"`path` of the teacher must contain the data set 'small', got \['other'\]"):
        RunTeacher(path={"other": "nowhere.trec"}).score(prepared, QUERIES)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"`unscored` must be one of \['lowest', 'ignore'\], got 'zero'"):
        RunTeacher(path="x.trec", unscored="zero")
    with pytest.raises(ValueError, match="`top_k` of a teacher must be at least 2, got 1"):
        CrossEncoderTeacher(pair_encoder=HashPairEncoder(), top_k=1)
