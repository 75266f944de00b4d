"""The `vllm-gates` commands, one file each."""
