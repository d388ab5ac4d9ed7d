# /// failure
# planted = "a layer was frozen when the optimizer was saved and is trained now"
# expect = "sd_optimizer_state_missing"
# ranks = "any"
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

dist.init_process_group("gloo")


def build(frozen):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(not frozen)
    return model, torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])


model, optimizer = build(frozen=True)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
state = get_optimizer_state_dict(model, optimizer)
model, optimizer = build(frozen=False)
set_optimizer_state_dict(model, optimizer, state)  # planted
