# genflow without a GPU: the API, a worker, the simulator are all this one image with another command.
FROM python:3.13-slim AS build
WORKDIR /build
RUN python -m venv /opt/genflow
COPY requirements.lock ./
RUN /opt/genflow/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/genflow/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
COPY --from=build /opt/genflow /opt/genflow
# One folder for everything genflow keeps; a volume mounted here starts out owned by genflow.
RUN useradd --create-home --uid 10001 genflow && install -d -o genflow -g genflow /data
USER genflow
WORKDIR /home/genflow
ENV PATH=/opt/genflow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GENFLOW_DATA=/data
VOLUME /data
EXPOSE 8190
STOPSIGNAL SIGTERM
ENTRYPOINT ["genflow"]
CMD ["up", "--host", "0.0.0.0", "--insecure"]
