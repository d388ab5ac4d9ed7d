# /// failure
# planted = "broadcast_from_rank0 without full_state_dict"
# expect = "sd_broadcast_needs_full"
# ranks = "any"
# ///
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

dist.init_process_group("gloo")
model = nn.Linear(4, 4)
options = StateDictOptions(broadcast_from_rank0=True)
set_model_state_dict(model, model.state_dict(), options=options)  # planted
