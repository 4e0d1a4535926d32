"""Programs that measure headlight. Each prints tables and its machine; a missed target is no error."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
# onnxruntime reads it when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
