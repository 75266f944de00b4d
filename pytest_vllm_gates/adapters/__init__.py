"""LoRA adapters that are served beside their base model: each answers for itself, and no other."""
