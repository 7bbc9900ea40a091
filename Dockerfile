# One image for all parts of the server; docker-compose.yml says which part a container runs.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /horarium

COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock

COPY schemas schemas
COPY streams streams
COPY projections projections
COPY api api

RUN useradd --system horarium && mkdir /data /snapshots && chown horarium /data /snapshots
USER horarium
VOLUME /data /snapshots
ENV HORARIUM_DATA=/data
