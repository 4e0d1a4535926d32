# Debian's Prometheus as an image like prom/prometheus, for a machine that cannot fetch that one.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY prometheus promtool /usr/bin/
RUN install --directory --owner 65534 --group 65534 /prometheus
USER 65534:65534
WORKDIR /prometheus
ENTRYPOINT ["/usr/bin/prometheus"]
