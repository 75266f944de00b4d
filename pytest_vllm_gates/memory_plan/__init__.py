"""The memory a model needs on a device, as vLLM would reserve it."""
