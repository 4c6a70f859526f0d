"""log4j2 and logback, in a Java that Python drives: one for all tests of a process."""

from __future__ import annotations

import functools
import shutil
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

import spark_versions
from faults.rotators.ledger import Writing
from faults.rotators.rotator import Mode, Rotator

# Spark brings these.
JARS = Path(pyspark.__file__).parent / "jars"
NEEDED = ("py4j-", "log4j-api-", "log4j-core-", "slf4j-api-")
DAY_MS = 86_400_000
LOG4J2 = """\
<Configuration status="error"><Appenders>
  <RollingFile name="file" {place} filePattern="{folder}/{pattern}">
    <PatternLayout pattern="%m%n"/>
    <Policies>{policy}</Policies>
    {strategy}
  </RollingFile>
</Appenders><Loggers><Root level="info"><AppenderRef ref="file"/></Root></Loggers></Configuration>
"""
LOGBACK = """\
<configuration>
  <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="file" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>{folder}/app.log</file>
    <encoder><pattern>%msg%n</pattern></encoder>
    <rollingPolicy class="ch.qos.logback.core.rolling.{policy}">
      <fileNamePattern>{folder}/{pattern}</fileNamePattern>
      {options}
    </rollingPolicy>
    {trigger}
  </appender>
  <root level="info"><appender-ref ref="file"/></root>
</configuration>
"""
BY_SIZE = (
    '<triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">'
    "<maxFileSize>100MB</maxFileSize></triggeringPolicy>"
)


@functools.cache
def java() -> Any:
    """Return a Java that has the libraries; it ends with this process."""
    if shutil.which("java") is None:
        pytest.skip("there is no Java here")
    spark_versions.need_jars("logback")
    brought = [jar for jar in JARS.glob("*.jar") if jar.name.startswith(NEEDED)]
    locked = [jar.place for jar in spark_versions.locked() if jar.kind == "logback"]
    (bridge,) = (jar for jar in brought if jar.name.startswith("py4j-"))
    port = launch_gateway(
        jarpath=str(bridge),
        classpath=":".join(map(str, (*brought, *locked))),
        javaopts=["-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx128m"],
        die_on_exit=True,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True)).jvm


class Logger(Rotator):
    """A logger of Java, whose clock is moved on by a day, or which is told to roll over."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._days = 0

    def write(self, line: bytes) -> None:
        self.log(line.decode().removesuffix("\n"))

    async def rotate(self, writing: Writing) -> None:
        self._days += 1
        self.turn()
        writing.begin()

    @property
    def now_ms(self) -> int:
        """What its clock says."""
        return int(time.time() * 1000) + self._days * DAY_MS

    @abstractmethod
    def log(self, text: str) -> None:
        """Write the line *text*."""

    @abstractmethod
    def turn(self) -> None:
        """Rotate, now or when the next line is written."""


class Log4j2(Logger):
    """A RollingFile appender of log4j2; without *is_daily* it rolls over when it is told to."""

    def __init__(
        self,
        folder: Path,
        pattern: str,
        strategy: str = "",
        *,
        is_daily: bool = False,
        is_direct: bool = False,
    ) -> None:
        super().__init__(folder)
        logs = self.live.parent
        file = folder / "log4j2.xml"
        file.write_text(
            LOG4J2.format(
                place="" if is_direct else f'fileName="{self.live}"',
                folder=logs,
                pattern=pattern,
                policy="<TimeBasedTriggeringPolicy/>"
                if is_daily
                else '<SizeBasedTriggeringPolicy size="100 MB"/>',
                strategy=strategy,
            )
        )
        self._core = java().org.apache.logging.log4j.core
        self._context = self._core.LoggerContext(folder.name, None, str(file))
        self._context.start()
        self._appender = self._context.getConfiguration().getAppender("file")
        self._is_daily = is_daily

    def log(self, text: str) -> None:
        message = java().org.apache.logging.log4j.message.SimpleMessage(text)
        event = self._core.impl.Log4jLogEvent.newBuilder().setMessage(message)
        level = java().org.apache.logging.log4j.Level.INFO
        self._appender.append(event.setLevel(level).setTimeMillis(self.now_ms).build())

    def turn(self) -> None:
        if not self._is_daily:
            self._appender.getManager().rollover()

    def close(self) -> None:
        self._context.stop()


class Logback(Logger):
    """A RollingFileAppender of logback."""

    def __init__(
        self, folder: Path, policy: str, pattern: str, options: str = "", trigger: str = ""
    ) -> None:
        super().__init__(folder)
        file = folder / "logback.xml"
        file.write_text(
            LOGBACK.format(
                folder=self.live.parent,
                policy=policy,
                pattern=pattern,
                options=options,
                trigger=trigger,
            )
        )
        classic = java().ch.qos.logback.classic
        self._context = classic.LoggerContext()
        self._context.setMDCAdapter(classic.util.LogbackMDCAdapter())
        configurator = classic.joran.JoranConfigurator()
        configurator.setContext(self._context)
        configurator.doConfigure(str(file))
        self._logger = self._context.getLogger("ROOT")
        self._appender = self._logger.getAppender("file")
        self._is_told = bool(trigger)

    def log(self, text: str) -> None:
        self._logger.info(text)

    def turn(self) -> None:
        if self._is_told:
            self._appender.rollover()
            return
        policy = self._appender.getRollingPolicy()
        policy.getTimeBasedFileNamingAndTriggeringPolicy().setCurrentTime(self.now_ms)

    def close(self) -> None:
        self._context.stop()


def _log4j2(mode: str, pattern: str, strategy: str = "", **options: bool) -> Mode:
    return Mode("log4j2", mode, lambda folder: Log4j2(folder, pattern, strategy, **options))


def _logback(mode: str, policy: str, pattern: str, options: str = "", trigger: str = "") -> Mode:
    return Mode("logback", mode, lambda folder: Logback(folder, policy, pattern, options, trigger))


OLDEST_LAST = '<DefaultRolloverStrategy fileIndex="min" max="9"/>'
OLDEST_FIRST = '<DefaultRolloverStrategy fileIndex="max" max="9"/>'
WINDOW = "<minIndex>1</minIndex><maxIndex>9</maxIndex>"
MODES = (
    _log4j2("`app-%i.log`, `fileIndex=min`", "app-%i.log", OLDEST_LAST),
    _log4j2("`app-%i.log`, `fileIndex=max`", "app-%i.log", OLDEST_FIRST),
    _log4j2("`app.log.%i.gz`", "app.log.%i.gz", OLDEST_LAST),
    _log4j2("`app-%d{yyyy-MM-dd}.log`", "app-%d{yyyy-MM-dd}.log", is_daily=True),
    _log4j2("`app-%d{yyyy-MM-dd}.log.gz`", "app-%d{yyyy-MM-dd}.log.gz", is_daily=True),
    _log4j2("`app-%d{yyyy-MM-dd}-%i.log.gz`", "app-%d{yyyy-MM-dd}-%i.log.gz"),
    _log4j2(
        "`app-%d{yyyy-MM-dd}-%i.log`, `DirectWriteRolloverStrategy`",
        "app-%d{yyyy-MM-dd}-%i.log",
        '<DirectWriteRolloverStrategy maxFiles="9"/>',
        is_direct=True,
    ),
    _logback("`TimeBased`", "TimeBasedRollingPolicy", "app.%d{yyyy-MM-dd}.log"),
    _logback("`TimeBased`, gz", "TimeBasedRollingPolicy", "app.%d{yyyy-MM-dd}.log.gz"),
    _logback(
        "`SizeAndTimeBased`",
        "SizeAndTimeBasedRollingPolicy",
        "app-%d{yyyy-MM-dd}-%i.log",
        "<maxFileSize>100MB</maxFileSize>",
    ),
    _logback("`FixedWindow`", "FixedWindowRollingPolicy", "app.%i.log", WINDOW, BY_SIZE),
    _logback("`FixedWindow`, gz", "FixedWindowRollingPolicy", "app.log.%i.gz", WINDOW, BY_SIZE),
)
