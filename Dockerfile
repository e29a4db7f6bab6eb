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

COPY pyproject.toml README.md /opt/streamingjob/
COPY operator /opt/streamingjob/operator
COPY engine /opt/streamingjob/engine
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation /opt/streamingjob \
 && rm -rf /opt/streamingjob

# The compiled kernels; any user may read them, and the entrypoint copies them where this folder is read-only.
RUN mkdir -p $NUMBA_CACHE_DIR \
 && if python -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("snapshot_engine.kernels"))'; \
    then python -m snapshot_engine.kernels; fi \
 && chmod -R a+rX $NUMBA_CACHE_DIR

COPY --chmod=755 hack/image/entrypoint.sh /opt/entrypoint.sh
RUN useradd --uid 1000 --gid 0 --no-user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin streamingjob
USER 1000:0
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "-g", "--", "/opt/entrypoint.sh"]
CMD ["operator"]
