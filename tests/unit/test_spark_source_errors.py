"""What users are told is one sentence, however deep in a trace it stands."""

from __future__ import annotations

import pickle

from logpipeline_spark.errors import Refused, sentence_of
from logpipeline_spark.table.storage import StorageFailed

TRACE = """[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):
  File "datasource.py", line 80, in latestOffset
logpipeline_spark.errors.Refused: stream LOGS_0 does not exist; create it

\tat org.apache.spark.api.python.PythonException.fillInStackTrace(PythonException.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_the_sentence_is_found_in_a_trace() -> None:
    """Spark hands a worker's exception over as text."""
    assert sentence_of(RuntimeError(TRACE)) == "stream LOGS_0 does not exist; create it"


def test_the_sentence_of_a_more_exact_kind_is_found_in_a_trace() -> None:
    """A storage, a lease and a manifest have kinds of their own; other errors of ours are bugs."""
    trace = TRACE.replace("logpipeline_spark.errors.Refused", _called(StorageFailed))
    bug = TRACE.replace("logpipeline_spark.errors.Refused", "logpipeline_spark.table.files.BadName")

    assert sentence_of(RuntimeError(trace)) == "stream LOGS_0 does not exist; create it"
    assert sentence_of(RuntimeError(bug)).startswith("[PYTHON_DATA_SOURCE_ERROR]")


def test_the_sentence_is_found_among_causes() -> None:
    """Also where it is raised in the driver itself."""
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = Refused("do this")

    assert sentence_of(wrapped) == "do this"


def test_of_a_foreign_error_the_first_line_is_told() -> None:
    """It may say enough; an empty one has a name at least."""
    assert sentence_of(ValueError("\nno such table\nat line 1")) == "no such table"
    assert sentence_of(ValueError()) == "ValueError"


def test_a_sentence_is_one_line_and_travels() -> None:
    """A second line would be lost on the way, and workers pickle what they raise."""
    error = Refused("first line\n  second")

    assert str(error) == "first line second"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def _called(kind: type[BaseException]) -> str:
    """Return how a traceback calls *kind*."""
    return f"{kind.__module__}.{kind.__qualname__}"
