# Images of subreplay. The local engine:  docker build -t subreplay .
# With Spark, Java and Delta:             docker build -t subreplay:spark --target spark .
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS source
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY conf/default.yaml conf/default.yaml
COPY src src
RUN python -m venv /opt/subreplay

FROM source AS local-packages
RUN /opt/subreplay/bin/pip install --no-cache-dir --no-compile -c constraints.txt .

FROM source AS spark-packages
COPY .ci/fetch_jars.py .ci/
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN /opt/subreplay/bin/pip install --no-cache-dir --no-compile -c constraints.txt '.[spark]' \
    && /opt/subreplay/bin/python .ci/fetch_jars.py

FROM python:${PYTHON}-slim AS base
RUN useradd --uid 10001 --create-home --home-dir /var/lib/subreplay subreplay
# The home folder keeps the compiled code between runs if it is a volume.
ENV PATH=/opt/subreplay/bin:$PATH HOME=/var/lib/subreplay PYTHONUNBUFFERED=1
WORKDIR /srv
ENTRYPOINT ["subreplay"]
CMD ["--help"]

FROM base AS spark
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-packages /opt/subreplay /opt/subreplay
USER 10001

FROM base AS local
COPY --from=local-packages /opt/subreplay /opt/subreplay
USER 10001
