"""Post-training quantization: which ops are quantized (`products`), by which steps (`steps`), from which data (`samples`)."""
