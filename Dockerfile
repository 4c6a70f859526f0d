# The images of logpipeline, one target each: operator, shipper, collector, table and nats.
#
#   docker build --target collector -t registry.example.net/logpipeline-collector:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 --target … .
#
# BASE is any Debian with Python 3.11 or newer and its venv module. For builds that can be repeated,
# pin it: take the digest that `docker buildx imagetools inspect python:3.11-slim-bookworm` prints,
# and give --build-arg BASE=docker.io/library/python:3.11-slim-bookworm@sha256:<digest>.
ARG BASE=docker.io/library/python:3.11-slim-bookworm
# What the image `table` begins with: Python as above, and Java 17 or newer. By default the stage
# `java` makes it of BASE; --build-arg JAVA=… names an image that has both.
ARG JAVA=java
# Labels only; --build-arg REVISION=$(git rev-parse HEAD)
ARG VERSION=0.1.0
ARG REVISION=

# What builds stays behind in this stage: the images get neither pip nor a compiler from it.
FROM ${BASE} AS tools
WORKDIR /src
COPY requirements/build.txt requirements/install-image requirements/
RUN python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install --no-cache-dir --require-hashes --only-binary :all: \
        -r requirements/build.txt
ENV PATH=/opt/tools/bin:$PATH

# Our own code, as it lies in each of the environments below: one layer, the same in four images.
FROM tools AS code
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY shipper shipper
COPY collector collector
COPY spark spark
COPY operator operator
COPY cli cli
COPY demo demo
COPY deploy/samples deploy/samples
RUN hatchling build -t wheel -d /wheel \
    && python3 -m venv --without-pip /opt/logpipeline \
    && pip --python /opt/logpipeline/bin/python install --no-cache-dir --no-index --no-deps \
        --root /code /wheel/*.whl

# What is locked is in a layer of its own: it stays when only our code changes.
FROM tools AS operator-environment
COPY requirements/operator.txt requirements/
RUN requirements/install-image operator /opt/logpipeline

FROM tools AS shipper-environment
COPY requirements/shipper.txt requirements/
RUN requirements/install-image shipper /opt/logpipeline

FROM tools AS collector-environment
COPY requirements/collector.txt requirements/
RUN requirements/install-image collector /opt/logpipeline

FROM tools AS table-environment
COPY requirements/table.txt requirements/
RUN requirements/install-image table /opt/logpipeline

FROM tools AS nats-environment
COPY requirements/nats.txt requirements/
RUN requirements/install-image nats /opt/nats

FROM ${BASE} AS bare
COPY requirements/bare-root /bare-root
RUN python3 /bare-root /bare

# Python and its libraries, without a shell, a package manager, or any other program.
# 65532 is nobody's number on a Debian node, and the one that images without a shell use as well.
FROM scratch AS runtime
COPY --from=bare /bare /
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# Output is a log that somebody waits for; the file system of the pods is read-only.
ENV PATH=/opt/logpipeline/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
ENTRYPOINT ["logpipeline"]

FROM runtime AS operator
LABEL org.opencontainers.image.title="logpipeline-operator" \
      org.opencontainers.image.description="Makes of each LogPipeline in a cluster what it asks for"
COPY --from=operator-environment /opt/logpipeline /opt/logpipeline
COPY --from=code /code /
EXPOSE 9103

FROM runtime AS shipper
LABEL org.opencontainers.image.title="logpipeline-shipper" \
      org.opencontainers.image.description="Ships a node's logs to JetStream"
COPY --from=shipper-environment /opt/logpipeline /opt/logpipeline
COPY --from=code /code /
EXPOSE 9101

FROM runtime AS collector
LABEL org.opencontainers.image.title="logpipeline-collector" \
      org.opencontainers.image.description="Writes logs from JetStream into files"
COPY --from=collector-environment /opt/logpipeline /opt/logpipeline
COPY --from=code /code /
EXPOSE 9102

FROM ${BASE} AS java
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

# The driver of Spark, and its executors: Spark tells the program which of them it is.
FROM ${JAVA} AS table
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.title="logpipeline-table" \
      org.opencontainers.image.description="Keeps a table of all lines, with Spark"
# Hadoop's classes ask who they run as, and take no number for an answer.
RUN echo 'logpipeline:x:65532:65532::/tmp:/usr/sbin/nologin' >> /etc/passwd
COPY --from=table-environment /opt/logpipeline /opt/logpipeline
COPY --from=code /code /
COPY spark/driver.py /opt/logpipeline/driver.py
ENV PATH=/opt/logpipeline/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
EXPOSE 9104
ENTRYPOINT ["python", "-m", "logpipeline_spark.job.entrypoint"]

# The server is one static binary: it needs certificates, and nothing else.
FROM scratch AS nats
COPY --from=bare /bare/etc/ssl/certs /etc/ssl/certs
COPY --from=bare /bare/usr/share/ca-certificates /usr/share/ca-certificates
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.title="logpipeline-nats" \
      org.opencontainers.image.description="The nats-server that is run for a LogPipeline"
COPY --from=nats-environment /opt/nats/bin/nats-server /usr/local/bin/nats-server
WORKDIR /
USER 65532:65532
EXPOSE 4222 6222 8222
ENTRYPOINT ["nats-server"]
