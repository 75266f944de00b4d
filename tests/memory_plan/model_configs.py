"""Configs of published models and of small ones, with their parameter counts."""

from __future__ import annotations

from typing import Any

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
    "tie_word_embeddings": False, "attention_bias": True, "sliding_window": 128,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
QWEN3_MOE = {
    "model_type": "qwen3_moe", "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
    "num_key_value_heads": 4, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "vocab_size": 129280, "n_routed_experts": 256, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
PUBLISHED: list[tuple[dict[str, Any], int]] = [
    (LLAMA_8B, 8_030_261_248),
    ({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
      "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
      "vocab_size": 152064, "tie_word_embeddings": False}, 7_615_616_512),
    ({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}, 596_049_920),
    ({**QWEN3_MOE, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32,
      "moe_intermediate_size": 768}, 30_532_122_624),
    ({**QWEN3_MOE, "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64,
      "moe_intermediate_size": 1536}, 235_093_634_560),
    ({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 32000, "num_local_experts": 8, "sliding_window": None}, 46_702_792_704),
    ({**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}, 20_914_757_184),
    ({**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128}, 116_829_156_672),
    ({"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
      "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 256, "vocab_size": 256000, "sliding_window": 4096}, 9_241_705_984),
    (DEEPSEEK_V3, 671_026_419_200),
    ({**DEEPSEEK_V3, "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
      "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
      "vocab_size": 102400, "n_routed_experts": 64, "n_shared_experts": 2,
      "first_k_dense_replace": 1, "q_lora_rank": None}, 15_706_484_224),
]  # fmt: skip
SMALL = {"vocab_size": 1000, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
         "hidden_size": 256, "intermediate_size": 512, "tie_word_embeddings": False}  # fmt: skip
SMALL_MOE = {**SMALL, "num_hidden_layers": 6, "num_experts": 8, "moe_intermediate_size": 64}
SMALL_GEMMA = {
    **SMALL, "model_type": "gemma4_text", "global_head_dim": 128, "sliding_window": 64,
    "vocab_size_per_layer_input": 900, "hidden_size_per_layer_input": 32,
    "tie_word_embeddings": True,
}  # fmt: skip
SMALL_SPARSE = {
    **DEEPSEEK_V3, "hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 128,
    "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 1000, "n_routed_experts": 8,
    "first_k_dense_replace": 1, "kv_lora_rank": 64, "q_lora_rank": 96, "index_topk": 2048,
    "index_head_dim": 128, "index_n_heads": 16,
}  # fmt: skip
# Made by transformers 5.19 on its "meta" device and counted there, a router's biases included.
MADE: dict[str, tuple[dict[str, Any], int]] = {
    "states beside attention": (
        {**SMALL, "model_type": "granitemoehybrid", "hidden_size": 512, "intermediate_size": 192,
         "shared_intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
         "layer_types": ["mamba", "mamba", "attention", "mamba"], "num_local_experts": 8,
         "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 32, "mamba_n_groups": 1,
         "mamba_d_conv": 4, "tie_word_embeddings": True}, 17_059_408),
    "one thing a layer": (
        {**SMALL, "model_type": "nemotron_h", "hidden_size": 512, "intermediate_size": 320,
         "num_hidden_layers": 6, "hybrid_override_pattern": "ME*-ME", "num_attention_heads": 8,
         "mamba_num_heads": 16, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2,
         "conv_kernel": 4, "n_routed_experts": 8, "n_shared_experts": 1,
         "moe_intermediate_size": 96, "moe_shared_expert_intermediate_size": 160}, 5_581_040),
    "experts in every second layer": (
        {**SMALL_MOE, "model_type": "qwen3_moe", "mlp_only_layers": [1],
         "decoder_sparse_step": 2}, 4_059_136),
    "experts but in one layer": (
        {**SMALL_MOE, "model_type": "qwen3_moe", "mlp_only_layers": [1]}, 4_065_280),
    "a shared expert with a gate": (
        {**SMALL_MOE, "model_type": "qwen2_moe", "num_hidden_layers": 4,
         "shared_expert_intermediate_size": 128}, 3_278_080),
    "experts by turns": (
        {**SMALL, "model_type": "llama4_text", "intermediate_size": 128,
         "intermediate_size_mlp": 512, "num_hidden_layers": 4, "num_local_experts": 4,
         "interleave_moe_layer_step": 2, "attention_chunk_size": 64}, 3_072_256),
    "embeddings of each layer": ({**SMALL_GEMMA, "num_hidden_layers": 5}, 3_676_064),
    "layers that read the cache of others": (
        {**SMALL_GEMMA, "num_hidden_layers": 10, "num_kv_shared_layers": 4,
         "use_double_wide_mlp": True}, 8_340_704),
    "an indexer": ({**SMALL_SPARSE, "model_type": "deepseek_v32"}, 8_508_144),
    "an indexer of GLM's": ({**SMALL_SPARSE, "model_type": "glm_moe_dsa"}, 8_508_144),
}  # fmt: skip
