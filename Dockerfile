# The server of Agents Ledger. See compose.yaml for a server with PostgreSQL.
FROM python:3.12-slim

ENV PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1
WORKDIR /app

# The pinned dependencies change less often than the code: they are a layer of their own.
COPY requirements/run.txt requirements/run.txt
RUN pip install --require-hashes -r requirements/run.txt

COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-deps --no-build-isolation .

RUN useradd --create-home --uid 1000 ledger && mkdir /data && chown ledger /data
USER ledger
VOLUME /data
ENV AGENTS_LEDGER=/data/ledger.db
EXPOSE 8717

# TLS ends at the proxy in front of the container,
# hence --insecure. The token is in the log.
CMD ["agents-ledger", "serve", "--host", "0.0.0.0", "--insecure", "--no-browser"]
