"""Parsers of bytes that other processes wrote: each returns a value or raises what it documents,
for any bytes. What once was found to break one stands in `tests/fuzz/<parser>/`.
"""

from __future__ import annotations

import hashlib
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing.inputs import bytes_for
from fuzzing.parsers import PARSERS, Parser
from logpipeline.declared_types import checked
from logpipeline_operator.callout.tokens import BadToken

CORPUS = Path(__file__).parents[1] / "fuzz"


def check(parser: Parser, raw: bytes) -> None:
    """Fail if *parser* treats *raw* in another way than it documents."""
    try:
        value = parser.parse(raw)
    except parser.errors:
        return
    except Exception as error:
        name = f"tests/fuzz/{parser.name}/{hashlib.sha256(raw).hexdigest()[:12]}.bin"
        raise AssertionError(f"{error!r} from {raw!r}: keep it as {name}") from error
    if parser.is_typed and (is_dataclass(value) or hasattr(value, "_fields")):
        checked(value)
    if parser.encode is not None:
        # Some values have several texts, one of which is written.
        written = parser.encode(value)
        assert parser.encode(parser.parse(written)) == written


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
def test_an_example_is_taken(parser: Parser) -> None:
    """Else the fuzzer would change what is refused anyway."""
    if parser.name == "tokens":
        with pytest.raises(BadToken, match="not the cluster's"):
            parser.parse(parser.examples[0])
        return
    value = parser.parse(parser.examples[0])

    assert value is not None
    assert parser.encode is None or parser.parse(parser.encode(value)) == value


@pytest.mark.filterwarnings("ignore:Possible nested set")  # in expressions of users
@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_bytes_are_taken_or_refused(parser: Parser, data: st.DataObject) -> None:
    """By an error that the parser's description names; what is taken can be written again."""
    check(parser, data.draw(bytes_for(parser)))


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*.bin")), ids=lambda path: str(path.relative_to(CORPUS))
)
def test_what_once_broke_a_parser_is_refused(path: Path) -> None:
    """Each file of the corpus."""
    check(PARSERS[path.parent.name], path.read_bytes())
