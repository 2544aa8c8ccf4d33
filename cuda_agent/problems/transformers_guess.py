"""What a constructor's or forward's parameter of a given name probably wants: the field's habits, as tables.

Pure data and lookups; sizes are the symbols of `transformers_text.Setting`. Every guess is tried by `transformers_crawl_child`.
"""

import re
from collections.abc import Mapping

from cuda_agent.problems.transformers_text import Argument, Draw, DrawKind

_FIELDS: Mapping[str, str] = {
    "{H}": "hidden_size d_model n_embd embed_dim dim hidden_dim embedding_size emb_dim n_embed model_dim d_embed text_hidden_size"
    " encoder_hidden_size decoder_hidden_size vision_hidden_size audio_hidden_size out_hidden_size output_hidden_size"
    " projection_dim output_dim word_embed_proj_dim lru_width projector_hidden_size fusion_hidden_size text_embed_dim"
    " hidden_size_per_layer_input pooler_hidden_size attention_hidden_size vision_embed_dim input_hidden_size embedding_dim"
    " encoder_hidden_dim transformer_hidden_dim vision_output_dim decoder_hidden_dim adapter_hidden_size output_proj_dim",
    "{A}": "num_attention_heads n_head num_heads n_heads encoder_attention_heads decoder_attention_heads attention_heads"
    " num_encoder_attention_heads num_decoder_attention_heads num_attn_heads nhead encoder_num_attention_heads index_n_heads"
    " decoder_num_attention_heads linear_num_value_heads num_attention_groups",
    "{A2}": "mamba_n_heads mamba_num_heads n_mamba_heads",
    "{K}": "num_key_value_heads num_kv_heads linear_num_key_heads num_query_groups n_kv_heads",
    "{D}": "head_dim d_kv attention_head_dim global_head_dim v_head_dim qk_nope_head_dim qk_rope_head_dim index_head_dim"
    " rotary_dim linear_key_head_dim linear_value_head_dim mamba_d_head mamba_head_dim kv_channels attention_key_size"
    " swa_head_dim attn_head_dim qk_head_dim",
    "{H2}": "kv_lora_rank q_lora_rank bottleneck_size bottleneck_dim",
    "{I}": "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size mlp_dim moe_intermediate_size"
    " shared_expert_intermediate_size dense_intermediate_size mlp_hidden_size inner_dim dim_feedforward d_inner block_ff_dim"
    " expert_ffn_hidden_size ffn_intermediate_size dim_ff encoder_intermediate_size decoder_intermediate_size"
    " moe_shared_expert_intermediate_size feed_forward_proj_dim intermediate_dim mlp_intermediate_size mamba_intermediate_size"
    " shared_intermediate_size intermediate_size_mlp",
    "2": "num_hidden_layers n_layer num_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers n_layers depth"
    " num_blocks encoder_num_hidden_layers decoder_num_hidden_layers encoder_depth decoder_depth n_group",
    "1": "topk_group n_shared_experts mamba_n_groups moe_layer_frequency decoder_sparse_step num_shared_experts",
    "0": "first_k_dense_replace",
    "16": "mamba_d_state state_size ssm_state_size",
    "{V}": "vocab_size text_vocab_size vocab_size_per_layer_input encoder_vocab_size decoder_vocab_size",
    "{P}": "max_position_embeddings n_positions max_source_positions max_target_positions max_sequence_length max_seq_len n_ctx"
    " context_length max_seq_length max_len",
    "{E}": "num_experts num_local_experts n_routed_experts moe_num_experts num_routed_experts",
    "{k}": "num_experts_per_tok moe_top_k moe_k num_experts_per_token top_k_experts moe_topk num_experts_per_topk",
    "{G}": "image_size img_size",
    "{Q}": "patch_size",
}
CONFIG_FIELDS: Mapping[str, str] = {name: symbol for symbol, names in _FIELDS.items() for name in names.split()}

_BUILD: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(layer|block|stage|conv)?_?(idx|index|id|number|i|layer_number)|layer_num|depth_idx|index|idx|i", ("0",)),
    (r"out_.*|output_.*|.*_out|hidden_size_output|c_out|dim_out|outplanes", ("{H}", "{I}")),
    (
        r"intermediate_size|intermediate_dim|hidden_features|mlp_dim|ffn_dim|d_ff|dim_feedforward|mlp_hidden_dim|.*ffn_dim",
        ("{I}",),
    ),
    (r"(num|n)_?(attention_|attn_)?heads?|heads|nhead|num_attn_heads", ("{A}",)),
    (r"(attention_)?head_(dim|size)|dim_head|key_dim|d_head|rotary_dim|attention_head_size", ("{D}",)),
    (r"num_(key_value|kv)_heads", ("{K}",)),
    (r"num_embeddings|vocab_size|n_vocab", ("{V}",)),
    (r"num_positions|max_(seq_len|len|length|positions|position_embeddings|seq_length)|n_positions|length", ("{P}",)),
    (r"num_experts|n_experts", ("{E}",)),
    (r"top_k|k", ("{k}",)),
    (r"padding_idx", ("1",)),
    (r"kernel_size|conv_kernel_size", ("3",)),
    (r"stride|dilation|padding|groups|factor|num_groups|layer_scale.*|scale|sequences?_reduction_ratio", ("1",)),
    (r"num_layers|depth|n_layers|num_blocks|mlp_ratio|scale_factor|ratio|expansion.*", ("2",)),
    (r"activation(_function|_fn)?|hidden_act|act(_fn)?|act_layer|non_linearity", ('"gelu"', "nn.GELU()")),
    (r".*eps", ("1e-6",)),
    (r".*drop.*|p", ("0.0",)),
    (r"(use_)?bias|adjust_padding|.*_bias", ("True",)),
    (r"is_.*|use_.*|has_.*|causal|shift.*|add_.*|with_.*|id_skip|log_scaling|downsample", ("False",)),
    (r"window_size", ("4", "(4, 4)")),
    (r"input_resolution|grid_size|feat_size", ("({R}, {R})",)),
    (r"num_patches", ("{N}",)),
    (r"patch_size", ("{Q}",)),
    (r"img_size|image_size", ("{G}",)),
    (r"num_labels|num_classes", ("10",)),
    (r"threshold", ("0.1",)),
    (
        r".*(hidden_size|_dim|_dims|dim|embed_dim|d_model|n_embd|channels?|features|_size|width|c_in|dimension|normalized_shape"
        r"|n_state|nx|nf|inner_dim|size|planes)",
        ("{H}",),
    ),
)


def build_guesses(name: str) -> tuple[str, ...]:
    """Texts to try for a required parameter of a constructor that is no configuration; none when the name says nothing."""
    return next((guesses for pattern, guesses in _BUILD if re.fullmatch(pattern, name)), ())


STATES = "{B}, {S}, {H}"
_HEADS = ("{B}, {A}, {S}, {D}", "{B}, {S}, {A}, {D}", "{BA}, {S}, {D}", "{T}, {A}, {D}")
_SHAPES: tuple[tuple[str, DrawKind, tuple[str, ...]], ...] = (
    (r"(decoder_)?input_ids|token_ids|input_tokens|.*_ids", "ids", ("{B}, {S}", "{T}")),
    (r"top_k_index|selected_experts|router_indices|topk_idx", "experts", ("{T}", "{B}, {S}")),
    (r"top_k_weights|routing_weights|topk_weight|top_k_scores", "rand", ("{T}, {k}", "{T}, {E}", "{B}, {S}, {k}")),
    (r"pixel_values_videos", "randn", ("{B}, 4, 3, {G}, {G}", "{B}, 8, 3, {G}, {G}")),
    (r"pixel_values|image|images|pixels", "randn", ("{B}, 3, {G}, {G}", "{B}, 4, 3, {G}, {G}", "{B}, 16, 3, {G}, {G}")),
    (r"input_values|waveform|audio", "randn", ("{B}, 1, {L}", "{B}, {L}")),
    (r"alibi", "randn", ("{BA}, 1, {S}", "{B}, {A}, 1, {S}")),
    (r"freqs_cis|freqs_ci", "polar", ("{B}, {S}, {D2}", "{S}, {D2}")),
    (r"rotary_pos_emb|rotary_emb|freqs", "randn", ("{S}, {D2}", "{T}, {D2}", "{B}, {S}, {D2}", "{S}, {D}")),
    (r"pooled_output|pooler_output|condition|timestep|temb|time_emb|.*_token|conditioning", "randn", ("{B}, {H}", STATES)),
    (r"position_bias|attn_bias|bias", "randn", ("{B}, {A}, {S}, {S}",)),
    (r"relative_pos(ition)?(_embeddings)?|r|pos_emb", "randn", (STATES, "1, {S}, {H}", "{S}, {H}")),
    (
        r"query(_states|_layer)?|keys?(_states|_layer)?|values?(_states|_layer)?|queries|q|k|v",
        "randn",
        (STATES, *_HEADS, "{T}, {H}"),
    ),
)
_CONSTANTS: Mapping[str, tuple[str, ...]] = {
    "height": ("{R}",),
    "width": ("{R}",),
    "input_dimensions": ("({R}, {R})",),
    "size": ("({R}, {R})",),
    "seq_len": ("{S}",),
    "seq_length": ("{S}",),
    "seqlen": ("{S}",),
    "length": ("{S}",),
    "max_seqlen": ("{S}",),
    "q_len": ("{S}",),
    "query_length": ("{S}",),
    "key_length": ("{S}",),
    "real_seq_length": ("{S}",),
    "bsz": ("{B}",),
    "batch_size": ("{B}",),
    "sequence_length": ("{S}",),
    "dtype": ("torch.float32",),
    "layer_type": ('"full_attention"', '"sliding_attention"'),
    "layer_idx": ("0",),
    "cache": ("None",),
    "past_key_values": ("None",),
    "layer_past": ("None",),
    "output_attentions": ("False",),
    "use_cache": ("False",),
}
MASKS = (
    r"(self_attn_|attention_|attn_|encoder_attention_|padding_|key_padding_|causal_|conv_|pixel_|encoder_|input_)?masks?|.*_mask"
)
STATE_NAMES = (
    r"(encoder_|decoder_|layer_|block_|image_|text_|vision_|audio_)?(hidden_states?|embeddings?|features|outputs?|states|embeds)|x|inputs?"
    r"|inputs_embeds|input_features?|sequence_output|hidden|data|z|s|tensor|key_value_states|input_tensor|residual|gate|context|memory"
    r"|latents|spectrogram|layer_input|attn_output|attention_output|attention_input"
)


def call_guesses(name: str, shapes: tuple[str, ...], optional: bool) -> list[Argument]:
    """Arguments to try for a parameter of forward; `shapes` are those that fit the class's first layer, best first."""
    if name == "position_embeddings":
        return _rotary(name, optional)
    if name in _CONSTANTS:
        return [Argument(name, value, (), optional) for value in _CONSTANTS[name]]
    if name == "position_ids":
        return [
            _one(name, "positions", "{B}, {S}", optional),
            _one(name, "positions", "3, {B}, {S}", optional),
            _one(name, "positions", "{T}, 2", optional),
            _one(name, "positions", "{B}, {S}, 2", optional),
            _one(name, "arange", "{S}", optional, constant=True),
        ]
    if name.startswith("cu_seqlens"):
        return [_one(name, "bounds", "{S}, {T}", optional, constant=True), _one(name, "bounds", "{T}", optional, constant=True)]
    if name in ("grid_thw", "image_grid_thw"):
        return [_one(name, "grid", "1, {R}, {R}", optional, constant=True)]
    if re.fullmatch(MASKS, name):
        return [
            Argument(name, "None", (), optional),
            _one(name, "randn", "{B}, 1, {S}, {S}", optional),
            _one(name, "ones", "{B}, {S}", optional, constant=True),
            _one(name, "ones_long", "{B}, {S}", optional, constant=True),
        ]
    for pattern, kind, found in _SHAPES:
        if re.fullmatch(pattern, name):
            wider = tuple(shape for shape in shapes if shape not in found) if kind == "randn" else ()
            return [_one(name, kind, shape, optional) for shape in (*found, *wider)]
    return [_one(name, "randn", shape, optional) for shape in shapes]


def _one(name: str, kind: DrawKind, shape: str, optional: bool, constant: bool = False) -> Argument:
    return Argument(name, "{}", (Draw(name, kind, shape, constant),), optional)


def _rotary(name: str, optional: bool) -> list[Argument]:
    pairs = [
        Argument(name, "({}, {})", (Draw("cos", "cos", shape), Draw("sin", "sin", shape)), optional)
        for shape in ("{B}, {S}, {D}", "{S}, {D}", "{T}, {D}", "1, {S}, {D}", "{B}, {S}, {D2}", "{S}, {D2}")
    ]
    tensors = [_one(name, "randn", shape, optional) for shape in (STATES, "{S}, {H}", "{B}, {H}, {R}, {R}")]
    return [*pairs, *tensors, _one(name, "polar", "{B}, {S}, {D2}", optional)]
