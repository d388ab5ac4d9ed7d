# /// failure
# planted = "the optimizer has other parameter groups than the one that was saved"
# expect = "optimizer_groups_differ"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
saved = torch.optim.AdamW(model.parameters()).state_dict()
optimizer = torch.optim.AdamW(model[1].parameters())
optimizer.load_state_dict(saved)  # planted
