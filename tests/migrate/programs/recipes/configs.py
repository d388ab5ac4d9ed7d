from dataclasses import dataclass

from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.fully_sharded_data_parallel import StateDictType


@dataclass
class train_config:
    steps: int = 3
    first: int = 0
    lr: float = 1e-2
    gradient_accumulation_steps: int = 2
    gradient_clipping: bool = True
    gradient_clipping_threshold: float = 1.0
    low_cpu_fsdp: bool = False
    output_dir: str = ""
    resume: str = ""


@dataclass
class fsdp_config:
    mixed_precision: bool = False
    use_fp16: bool = False
    sharding_strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD  # HYBRID_SHARD "Full Shard within a node DDP cross Nodes", SHARD_GRAD_OP
    checkpoint_type: StateDictType = StateDictType.SHARDED_STATE_DICT  # alternatively can use SHARDED_STATE_DICT
    fsdp_activation_checkpointing: bool = True
    fsdp_cpu_offload: bool = False
    pure_bf16: bool = False
    optimizer: str = "AdamW"
