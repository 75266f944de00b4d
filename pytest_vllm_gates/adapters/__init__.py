"""LoRA adapters served beside their base model: each request is answered by the named one."""
