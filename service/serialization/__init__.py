"""Answers as bytes: items in JSON, npz and safetensors, their size beforehand, and compression."""
