# /// pattern
# id = "fsdp1-clip"
# title = "FSDP1: clip gradients by their global norm"
# topics = ["gradient-clipping", "fsdp1-wrapping"]
# follows = ["torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_"]
# departs = ""
# architecture = ""
# form = "fsdp1"
# test = "test_fsdp1.py::test_fsdp1_clip"
# processes = 2
# not_run = ""
# ///


def step(model, optimizer, inputs, targets, loss_fn, max_norm):
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    # The method of the ROOT FullyShardedDataParallel, on all ranks: it adds the squares up over the ranks. The function
    # torch.nn.utils.clip_grad_norm_ sees this rank's shards only, so each rank would scale by another factor, silently.
    norm = model.clip_grad_norm_(max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach(), norm  # the norm before clipping, the same on all ranks
