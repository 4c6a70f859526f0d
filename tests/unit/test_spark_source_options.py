"""Options of the data source: named as users of Spark know them, and all mistakes told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.source.options import SourceOptions, parse, starting_of

NEEDED = {"servers": "nats://a:4222,b:4222", "stream": "LOGS", "partitions": "2", "subject": "logs"}


def given(**changes: str) -> SourceOptions:
    """Return the parsed options, the needed ones with *changes*."""
    return parse(NEEDED | changes)


def refused(**changes: str) -> str:
    """Return why the needed options with *changes* are refused."""
    with pytest.raises(Refused) as caught:
        given(**changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults() -> None:
    """What a user gets who gives only what is needed; changing it is a decision."""
    options = given()

    assert options.streams == ("LOGS_0", "LOGS_1")
    assert options.nats.servers == ("nats://a:4222", "b:4222")
    assert (options.partitions, options.format, options.include_headers) == (2, "lines", False)
    assert (options.min_partitions, options.max_bytes_per_trigger) == (1, None)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (None, None)
    assert options.max_trigger_delay_s == 15 * 60
    assert (options.fail_on_data_loss, options.patience_s) == (True, 60)
    assert options.login_patience_s == 3
    assert starting_of(options, is_stream=True).kind == "latest"
    assert starting_of(options, is_stream=False).kind == "earliest"


def test_names_of_options_have_no_case() -> None:
    """Spark lowers some of them on the way."""
    options = parse({name.upper(): value for name, value in NEEDED.items()} | {"jsdomain": "hub"})
    assert options.nats.js_domain == "hub"


def test_streams_may_be_listed() -> None:
    """Some of a pipeline's streams, with its count of partitions."""
    assert given(stream="A, B").streams == ("A", "B")
    assert given(stream="LOGS_1,", partitions="10").partitions == 10
    single = parse({"servers": "a", "stream": "LOGS", "subject": "logs"})
    assert (single.streams, single.partitions) == (("LOGS",), 1)


def test_messages_need_no_subject() -> None:
    """Nothing is taken apart."""
    options = parse({"servers": "a", "stream": "S", "format": "Messages"})
    assert (options.format, options.subject) == ("messages", "")


def test_a_pipeline_names_its_streams() -> None:
    """As the product names them; how many there are is asked, unless it is said."""
    options = parse({"servers": "a", "pipeline": "logging/my.prod"})
    assert (options.base, options.streams, options.is_fixed) == ("LP_logging_my__prod", (), False)
    assert parse({"servers": "a", "pipeline": "prod"}).base == "LP_default_prod"
    counted = parse({"servers": "a", "pipeline": "prod", "partitions": "2"})
    assert counted.streams == ("LP_default_prod_0", "LP_default_prod_1")


def test_a_pattern_names_streams_that_are_asked_for() -> None:
    """Places in streams are looked at when these are known."""
    text = '{"ANY": 7}'
    options = parse({"servers": "a", "subscribePattern": "LP_.*", "startingOffsets": text})
    assert (options.pattern, options.is_fixed) == ("LP_.*", False)
    assert options.starting is not None
    assert options.starting.unlike(["ANY"]) == ""
    assert "it must name each of ANY, OTHER" in options.starting.unlike(["OTHER", "ANY"])


def test_limits_of_a_batch_are_read_as_kafka_s_source_reads_them() -> None:
    """A delay is a time span, or milliseconds."""
    options = given(maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="90s")
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (100, 10)
    assert options.max_trigger_delay_s == 90
    assert given(maxTriggerDelay="1500").max_trigger_delay_s == 1.5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strem", "did you mean 'stream'?"),
        ("STARTINGOFSETS", "did you mean 'startingOffsets'?"),
        ("maxoffsetpertrigger", "did you mean 'maxOffsetsPerTrigger'?"),
        ("subscribe", "write 'stream'"),
        ("kafka.bootstrap.servers", "write 'servers'"),
        ("groupIdPrefix", "there are no groups"),
        ("kafka.security.protocol", "it is an option of Kafka's client"),
        ("zzz", "the options are servers, pipeline, stream"),
    ],
)
def test_an_unknown_option_is_refused_with_what_to_write(name: str, said: str) -> None:
    """Whatever its case, since Spark does not tell one from the other."""
    assert f"option {name!r} is not known: {said}" in refused(**{name: "1"})


def test_all_mistakes_are_told_at_once() -> None:
    """A user does not want to start Spark for each of them."""
    with pytest.raises(Refused) as caught:
        parse({"servrs": "a", "format": "rows", "minPartitions": "0", "failOnDataLoss": "maybe"})

    text = str(caught.value)
    for part in (
        "'servrs' is not known",
        "'servers' is missing",
        "did you mean 'servers'?",
        "'stream' is missing: the base name",
        "set 'pipeline', a LogPipeline as namespace/name, or 'subscribePattern'",
        "'rows' is neither",
        "'0' is not a number from 1",
        "'maybe' is neither",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"startingOffsets": "first"}, "neither earliest, latest, nor JSON"),
        ({"startingOffsets": '{"LOGS_0": 1}'}, "it must name each of LOGS_0, LOGS_1"),
        ({"startingOffsets": '{"LOGS_0": 1, "LOGS_1": true}'}, "gives each stream a sequence"),
        ({"startingOffsets": '{"LOGS_0": 1, "LOGS_1": -3}'}, "gives each stream a sequence"),
        ({"startingOffsets": "[1]"}, "gives each stream a sequence"),
        ({"startingTimestamp": "yesterday"}, "is not a time"),
        ({"startingOffsets": "latest", "startingTimestamp": "2026-11-21"}, "set only one of"),
        ({"startingOffsetsByTimestamp": "2026-11-21"}, "JSON gives each stream a time"),
        ({"startingOffsetsByTimestamp": '{"LOGS_0": 1}'}, "it must name each of LOGS_0, LOGS_1"),
        ({"endingOffsetsByTimestamp": '{"LOGS_0": 1, "LOGS_1": "x"}'}, "'x' is not a time"),
        ({"pipeline": "prod"}, "set only one of 'pipeline' and 'stream'"),
        ({"stream": "", "pipeline": "a/b/c"}, "'a/b/c' is not a LogPipeline"),
        ({"stream": "", "pipeline": "Prod_1"}, "'Prod_1' is not a LogPipeline"),
        ({"stream": "", "subscribePattern": "LOGS_("}, "is not a regular expression"),
        ({"subject": "logs.>"}, "'logs.>' is not a root of subjects"),
        ({"maxOffsetsPerTrigger": "0"}, "'0' is not a number from 1"),
        ({"maxTriggerDelay": "soon"}, "option 'maxTriggerDelay'"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is more than"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger"),
        ({"stream": "logs.>"}, "is not a name of a stream"),
        ({"stream": "A,A"}, "names a stream twice"),
        ({"credsFile": "/nowhere/user.creds"}, "there is no file '/nowhere/user.creds'"),
    ],
)
def test_a_mistake_says_what_to_write(changes: dict[str, str], said: str) -> None:
    """Each by its option's name."""
    assert said in refused(**changes)


def test_places_are_read_as_kafka_s_source_reads_them() -> None:
    """JSON with -2 and -1, and times as ISO 8601 or milliseconds."""
    place = given(startingOffsets='{"LOGS_0": -2, "LOGS_1": 17}').starting
    assert place is not None
    assert (place.of("LOGS_0"), place.of("LOGS_1")) == (-2, 17)
    moments = ("2026-11-21T10:00:00.000001Z", "2026-11-21T11:00:00.000001+01:00")
    for text in moments:
        time = given(startingTimestamp=text).starting
        assert time is not None
        assert time.time_ns == 1_795_255_200_000_001_000
    times = given(endingOffsetsByTimestamp='{"LOGS_0": 1795255200000, "LOGS_1": "2026-11-21"}')
    assert times.ending is not None
    assert times.ending.time_of("LOGS_0") == 1_795_255_200_000_000_000
    assert times.ending.time_of("LOGS_1") == 1_795_219_200_000_000_000
    time = given(startingTimestamp="1795255200000").starting
    assert time is not None
    assert time.time_ns == 1_795_255_200_000_000_000


def test_credentials_come_from_files(tmp_path: Path) -> None:
    """No option holds a secret: options are shown in plans and logs."""
    path = tmp_path / "token"
    path.write_text("secret")
    options = given(tokenFile=str(path), maxBytesPerTrigger="64Mi")

    assert options.nats.token_file == path
    assert options.max_bytes_per_trigger == 64 * 1024 * 1024
