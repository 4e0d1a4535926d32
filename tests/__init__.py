"""The tests: a folder for each part of the product, and one for what HTTP clients see."""

import os

# Before anything is imported that would look these up: nothing here asks the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
