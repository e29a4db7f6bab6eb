# One image for the operator, the drivers and the executors; the entrypoint is told which of them to be.
#   docker build -t streamingjob:dev .        anywhere
#   make image                                into the cluster of `make cluster`, without a registry
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS system
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates libnss-wrapper openjdk-17-jre-headless python3 python3-venv tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log

# What is installed depends on the list of dependencies alone, not on the rest of pyproject.toml; its time is fixed
# because it counts as a change.
FROM system AS requirements
COPY pyproject.toml hack/image/list_requirements.py /
RUN python3 /list_requirements.py /pyproject.toml > /requirements.txt && touch --date=@0 /requirements.txt

FROM system
ENV VIRTUAL_ENV=/opt/venv
ENV PATH=$VIRTUAL_ENV/bin:$PATH \
    SPARK_HOME=$VIRTUAL_ENV/lib/python3.11/site-packages/pyspark \
    PYSPARK_PYTHON=$VIRTUAL_ENV/bin/python \
    NUMBA_CACHE_DIR=/opt/numba-cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    LANG=C.UTF-8
# Both secrets are optional: certificates and an index of the machine that builds, used and not kept.
COPY --from=requirements /requirements.txt /opt/requirements.txt
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt \
    python3 -m venv $VIRTUAL_ENV \
 && pip install --no-cache-dir --disable-pip-version-check -r /opt/requirements.txt

# Installed before it is there: what follows for a change of the code is a copy.
COPY pyproject.toml README.md /opt/streamingjob/
RUN cd /opt/streamingjob && mkdir -p operator/streamingjob_operator engine/snapshot_engine \
 && touch operator/streamingjob_operator/__init__.py engine/snapshot_engine/__init__.py \
 && pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation -e /opt/streamingjob

COPY --chmod=755 hack/image/entrypoint.sh /opt/entrypoint.sh
RUN useradd --uid 1000 --gid 0 --no-user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin streamingjob

# The code, and what is compiled of it. Kernels that did not change are kept from build to build; the entrypoint copies
# them where this folder is read-only.
COPY operator /opt/streamingjob/operator
COPY engine /opt/streamingjob/engine
COPY hack/image/stamp_sources.py /opt/stamp_sources.py
RUN --mount=type=cache,target=/var/cache/numba \
    python /opt/stamp_sources.py /opt/streamingjob \
 && if [ -e /opt/streamingjob/engine/snapshot_engine/kernels ]; \
    then NUMBA_CACHE_DIR=/var/cache/numba python -m snapshot_engine.kernels; fi \
 && mkdir -p $NUMBA_CACHE_DIR && cp -r --preserve=timestamps /var/cache/numba/. $NUMBA_CACHE_DIR \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/streamingjob \
 && chmod -R a+rX $NUMBA_CACHE_DIR /opt/streamingjob

USER 1000:0
WORKDIR /tmp
# Only the program itself gets signals: a driver stops its Spark in its own time.
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/entrypoint.sh"]
CMD ["operator"]
