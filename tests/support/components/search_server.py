"""A real OpenSearch of one node, in a Java of its own: with few megabytes, on free ports, in a
folder of its own. It can be killed, and started again.

Maven Central has the server's libraries and no archive of it, so its home is put together here as
the archive has it: one module, which is HTTP.
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import spark_versions
from components.real_server import RealServer
from components.sink_servers import Forwarding, text_of
from logpipeline_spark.requirements import has_java
from ports import free_port

# Ten seconds, and minutes where others use the processors.
START_WITHIN_S = 240.0
ANSWERS_WITHIN_S = 60.0
# More than a test writes; a search returns no more by itself.
DOCUMENTS_MAX = 10_000
JAVA = (
    *("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    # It refuses to run as root, which it asks the system by a library of C. Without that it says
    # that it does not know, and runs.
    *("-Djna.nosys=true", "-Djna.nounpack=true"),
    *("-Djava.security.manager=allow", "-Dlog4j2.disable.jmx=true", "-Dio.netty.noUnsafe=true"),
    "-Dopensearch.distribution.type=tar",
)
# A library of the one module; all others are the server's.
OF_MODULE = ("netty-", "transport-netty4")
DESCRIPTOR = """\
name=transport-netty4
description=HTTP
version={version}
opensearch.version={version}
java.version=11
classname=org.opensearch.transport.Netty4Plugin
extended.plugins=
has.native.controller=false
"""
POLICY = """\
grant {
  permission java.lang.RuntimePermission "accessDeclaredMembers";
  permission java.lang.RuntimePermission "getClassLoader";
  permission java.lang.RuntimePermission "setContextClassLoader";
  permission java.lang.reflect.ReflectPermission "suppressAccessChecks";
  permission java.net.SocketPermission "*", "accept,connect,listen,resolve";
};
"""
SETTINGS = """\
discovery.type: single-node
network.host: 127.0.0.1
http.port: {port}
transport.port: {transport}
bootstrap.system_call_filter: false
# Whether the machine's disk is nearly full is none of a test's business.
cluster.routing.allocation.disk.threshold_enabled: false
"""
LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%p][%c{1.}] [%node_name] %marker%m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class OpenSearch(RealServer):
    """An OpenSearch in *folder*, which keeps what it holds over a `kill` and a `start`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        jars = [jar for jar in spark_versions.locked() if jar.kind == "opensearch"]
        of_module = [jar for jar in jars if jar.place.name.startswith(OF_MODULE)]
        self._path = os.pathsep.join(str(jar.place) for jar in jars if jar not in of_module)
        version = next(
            jar.place.stem.rpartition("-")[2]
            for jar in jars
            if "/opensearch/opensearch/" in jar.path
        )
        module = folder / "modules" / "transport-netty4"
        for made in (module, folder / "config", folder / "lib", folder / "plugins", folder / "tmp"):
            made.mkdir(parents=True)
        for jar in of_module:
            # No link: it may read what lies in its own home.
            shutil.copy(jar.place, module)
        (module / "plugin-descriptor.properties").write_text(DESCRIPTOR.format(version=version))
        (module / "plugin-security.policy").write_text(POLICY)
        settings = SETTINGS.format(port=port, transport=free_port())
        (folder / "config" / "opensearch.yml").write_text(settings)
        (folder / "config" / "log4j2.properties").write_text(LOGGING)

    def start(self) -> None:
        """Return once it answers."""
        home = self.folder
        own = (
            f"-Dopensearch.path.home={home}",
            f"-Dopensearch.path.conf={home / 'config'}",
            f"-Djava.io.tmpdir={home / 'tmp'}",
        )
        self.launch(
            ["java", *JAVA, *own, "-cp", self._path, "org.opensearch.bootstrap.OpenSearch"],
            # An index that was there before the start is read first.
            lambda: self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=30s"),
            until=OSError,
            within_s=START_WITHIN_S,
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer to a request with *body* as JSON.

        Raises:
            OSError: it does not answer, or refuses.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S) as answer:
            return json.loads(answer.read())

    def documents(self, index: str) -> list[dict[str, Any]]:
        """Return what *index* holds, in the order in which it came."""
        try:
            self.ask("POST", f"/{index}/_refresh")
            query = {"size": DOCUMENTS_MAX, "sort": [{"_seq_no": "asc"}]}
            found = self.ask("POST", f"/{index}/_search", query)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        return [hit["_source"] for hit in found["hits"]["hits"]]

    def texts(self, index: str) -> list[bytes]:
        """Return the lines that *index* holds, in the order in which they came."""
        return [text_of(document) for document in self.documents(index)]


@dataclass
class SearchForwarding(Forwarding):
    """Faults on the way to *search*, whose *index* holds the lines."""

    search: OpenSearch = field(kw_only=True)
    index: str = field(kw_only=True)

    def texts(self) -> list[bytes]:
        """Return the lines that the real one holds."""
        return self.search.texts(self.index)


@contextmanager
def open_search(folder: Path) -> Iterator[OpenSearch]:
    """Run an OpenSearch in *folder* for as long as the block lasts."""
    if not has_java():
        pytest.skip("there is no Java here")
    spark_versions.need_jars("opensearch")
    search = OpenSearch(folder)
    try:
        search.start()
        yield search
    finally:
        search.kill()
        shutil.rmtree(folder / "data", ignore_errors=True)
