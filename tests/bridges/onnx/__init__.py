"""Tests of the bridge to ONNX."""
