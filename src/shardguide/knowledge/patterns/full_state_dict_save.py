# /// pattern
# id = "full-state-dict-save"
# title = "Save the whole model in one file"
# topics = ["state-dict-helpers", "load-full-checkpoint", "distributed-checkpoint"]
# follows = ["torch.distributed.checkpoint.state_dict.StateDictOptions", "https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_checkpoint.py::test_full_state_dict_save"
# processes = 2
# not_run = ""
# ///
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict


def save_full(model, optimizer, path):
    # full_state_dict gathers each parameter, cpu_offload keeps the result on rank 0 only, in CPU memory: the others get {}.
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    # Gathering is a collective, so EVERY rank makes these two calls; "if rank == 0" around them would hang.
    model_state = get_model_state_dict(model, options=options)
    optimizer_state = get_optimizer_state_dict(model, optimizer, options=options)
    # Writing is for one. The file holds plain tensors: it loads without a process group.
    if dist.get_rank() == 0:
        torch.save({"model": model_state, "optimizer": optimizer_state}, path)
    # Nobody may start to read the file, or end the program, before it is complete.
    dist.barrier()
