"""Tiny models to run the snippets on, each with the units that a plan would give it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from shardguide.guidance.model import Unit

VOCABULARY, WIDTH, LAYERS, LENGTH = 32, 16, 2, 6


class Family(NamedTuple):
    """How one family appears in a snippet."""

    architecture: str
    config: dict[str, Any]  # for the transformers config class
    config_class: str
    blocks: tuple[str, ...]  # names of the lists of layers
    embedding: str = ""  # untied embedding, "" if tied or none
    head: tuple[str, ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    frozen: str = ""  # pattern of the embedding's parameters
    placed: tuple[tuple[str, int], ...] = ()  # parameters worth another dimension
    seq2seq: bool = False

    def units(self, grouped: bool) -> tuple[Unit, ...]:
        """Blocks alone, or with the embedding and the head in groups of their own."""
        units = [Unit((f"{name}.{i}",), "Block", "block") for name in self.blocks for i in range(LAYERS)]
        if grouped and self.embedding:
            units.append(Unit((self.embedding,), "Embedding", "embedding"))
        if grouped and self.head:
            units.append(Unit(self.head, "Norm+Linear", "head"))
        return tuple(units)


_LLAMA: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_TIED_LLAMA = (("model.embed_tokens.weight", "lm_head.weight"),)

FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM",
        _LLAMA,
        "LlamaConfig",
        ("model.layers",),
        "model.embed_tokens",
        ("model.norm", "lm_head"),
        frozen="model.embed_tokens.*",
        placed=(("model.layers.*.self_attn.q_proj.weight", 1), ("lm_head.weight", 1)),
    ),
    "llama_base": Family(
        "LlamaModel",
        _LLAMA,
        "LlamaConfig",
        ("layers",),
        "embed_tokens",
        frozen="embed_tokens.*",
        placed=(("layers.*.mlp.up_proj.weight", 1),),
    ),
    "gemma": Family(
        "Gemma2ForCausalLM",
        {**_LLAMA, "head_dim": 4, "num_key_value_heads": 2, "query_pre_attn_scalar": 4, "sliding_window": 4},
        "Gemma2Config",
        ("model.layers",),
        tied=_TIED_LLAMA,
        frozen="model.embed_tokens.*",
        placed=(("model.layers.*.mlp.down_proj.weight", 1),),
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        {**_LLAMA, "num_local_experts": 3, "num_experts_per_tok": 2},
        "MixtralConfig",
        ("model.layers",),
        "model.embed_tokens",
        ("model.norm", "lm_head"),
        frozen="model.embed_tokens.*",
        placed=(("model.layers.*.mlp.experts.gate_up_proj", 1), ("model.layers.*.mlp.experts.down_proj", 1)),
    ),
    "gpt2": Family(
        "GPT2LMHeadModel",
        {
            "n_embd": WIDTH,
            "n_layer": LAYERS,
            "n_head": 2,
            "n_positions": 16,
            "vocab_size": VOCABULARY,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        "GPT2Config",
        ("transformer.h",),
        tied=(("transformer.wte.weight", "lm_head.weight"),),
        frozen="transformer.wte.*",
        placed=(("transformer.h.*.mlp.c_fc.weight", 1),),
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        {
            "d_model": WIDTH,
            "d_kv": 4,
            "d_ff": 24,
            "num_layers": LAYERS,
            "num_decoder_layers": LAYERS,
            "num_heads": 4,
            "vocab_size": VOCABULARY,
            "dropout_rate": 0.0,
            "decoder_start_token_id": 0,
        },
        "T5Config",
        ("encoder.block", "decoder.block"),
        tied=(("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),),
        frozen="shared.*",
        placed=(("encoder.block.*.layer.0.SelfAttention.q.weight", 1),),
        seq2seq=True,
    ),
    "own": Family(
        "",
        {},
        "",
        ("layers",),
        "embed",
        ("norm", "head"),
        frozen="embed.*",
        placed=(("layers.*.up.weight", 1),),
    ),
}
TP_PLAN = tuple(
    (f"model.layers.*.{name}", "rowwise" if name in ("self_attn.o_proj", "mlp.down_proj") else "colwise")
    for name in (
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    )
)


class Scale(nn.Module):
    """A parameter and a buffer that only reset_parameters() knows how to fill."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH))
        self.register_buffer("offset", torch.empty(WIDTH), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Ones, and a ramp."""
        nn.init.ones_(self.weight)
        with torch.no_grad():
            self.offset.copy_(torch.arange(WIDTH) / WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.offset.to(x.dtype)


class Block(nn.Module):
    """A residual layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 24)
        self.down = nn.Linear(24, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Own(nn.Module):
    """What a user's own model looks like to the snippet."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Scale()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def own_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Cross entropy on the next token."""
    logits = model(batch["input_ids"]).float()
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())


def base_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Something to differentiate, for a model without a head."""
    return model(input_ids=batch["input_ids"]).last_hidden_state.float().sin().mean()


def model_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss that the model computes from labels."""
    loss: torch.Tensor = model(**batch).loss
    return loss


def build(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model with ordinary construction: real weights, seed 0."""
    import transformers

    torch.manual_seed(0)
    family = FAMILIES[name]
    torch.set_default_dtype(dtype)
    try:
        if not family.architecture:
            return Own()
        config = getattr(transformers, family.config_class)(**family.config, use_cache=False)
        model: nn.Module = getattr(transformers, family.architecture)(config)
        return model
    finally:
        torch.set_default_dtype(torch.float32)


def batches(name: str, ranks: int, micro: int) -> list[list[dict[str, torch.Tensor]]]:
    """``[rank][micro]``: different data for each, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (ranks, micro, 2, LENGTH), generator=generator)
    architecture = FAMILIES[name].architecture
    keys = ("input_ids", "labels") if "For" in architecture or "LMHead" in architecture else ("input_ids",)
    return [[dict.fromkeys(keys, batch) for batch in rank] for rank in ids]
