"""Tables of a result, for tests."""

from graphrerank.evaluation.records import Replication
from graphrerank.evaluation.report import dataset_tables
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.tables import Table, records_table


def all_tables(result: EvaluationResult) -> dict[str, Table]:
    """Return all tables of a result by data set and title."""
    tables = {
        f"{name}: {table.title}": table for name, data in result.datasets.items() for table in dataset_tables(data)
    }
    return {**tables, **({"over all data sets": records_table(Replication, result.across)} if result.across else {})}
