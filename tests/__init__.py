"""The tests: a folder for each part of the product, and one for what HTTP clients see."""

import os

# Before anything is imported that would look these up: nothing here asks the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# As the service does for itself: threads that spin after each small product take the cores from the tests
# beside them. Without this the tests of the kernels take four times as much processor time.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
