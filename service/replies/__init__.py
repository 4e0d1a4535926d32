"""Serializes responses: items in JSON, npz and safetensors; bounds on their size; compression."""
