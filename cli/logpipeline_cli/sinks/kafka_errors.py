"""What an error of Kafka, or of its client, means for a batch."""

from __future__ import annotations

from confluent_kafka import KafkaError

from logpipeline_cli.sinks.destination import Misdirected, Refused, TryAgain

# Errors of the records themselves.
REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
# Wrong login or rights, or something that this cluster does not take: no record causes them.
MISDIRECTED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.UNSUPPORTED_VERSION,
    }
)
# Another process began to write under our transactional id.
FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)


class TooLarge(Refused):
    """Kafka takes no request of this size: one record is too large, or several are together."""


class Heard:
    """What a client said of its connections since it began."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self._wrong: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Take note of *error*, as a client's callback."""
        # "1/1 brokers are down" follows the error that says why.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error
        # A handshake fails also where a broker goes away in the middle of it.
        is_certificate = error.code() == KafkaError._SSL and "certificate" in error.str()
        if error.code() in MISDIRECTED or is_certificate:
            self._wrong = error

    @property
    def has_reason(self) -> bool:
        """Whether a connection failed since, which explains that an answer does not come."""
        return self._last is not None

    def check(self, where: str) -> None:
        """Return if nothing is wrong that time does not mend.

        Raises:
            Misdirected: login, certificate or rights are wrong.
        """
        if self._wrong is not None:
            raise Misdirected(f"{where}: {self._wrong.str()}; check the login, --ca and --tls")

    def meaning(self, error: KafkaError, where: str) -> TryAgain | Refused | Misdirected:
        """Return what *error* means for the batch in hand."""
        code = error.code()
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return TooLarge(f"{where}: {error.str()}")
        if code in REFUSED:
            return Refused(f"{where}: {error.str()}")
        if code in MISDIRECTED:
            return Misdirected(f"{where}: {error.str()}; check the login and its rights")
        if code in FENCED:
            return TryAgain(f"{where}: another process writes as this sink: {error.str()}")
        if self._last is not None and error.code() < 0:
            return TryAgain(f"{where} did not answer: {self._last.str()}")
        return TryAgain(f"{where}: {error.str()}")
