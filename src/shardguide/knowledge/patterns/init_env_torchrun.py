# /// pattern
# id = "init-env-torchrun"
# title = "Environment initialisation under torchrun"
# topics = ["init-env", "process-group-setup", "torchrun", "device-binding"]
# follows = ["torch.distributed.init_process_group", "https://docs.pytorch.org/docs/stable/elastic/run.html"]
# departs = ""
# form = "c10d"
# test = "test_init_forms.py::test_torchrun_gives_both_forms_their_ranks"
# processes = 2
# [run]
# 'torch.device("cuda", local_rank)' = 'torch.device("cpu")'
# 'torch.cuda.set_device(device)' = 'assert local_rank == int(os.environ["RANK"])'
# '"nccl", device_id=device' = '"gloo"'
# [before."2.3"]
# '"nccl", device_id=device' = '"nccl"'
# ///
# Start with: torchrun --nproc-per-node=gpu train.py
import os

import torch
import torch.distributed as dist


def main() -> float:
    # torchrun sets LOCAL_RANK, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in every process that it starts.
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    # Before anything touches CUDA: otherwise every process would also take memory on GPU 0.
    torch.cuda.set_device(device)
    # No init_method means env://; rank and world size come from the environment too.
    dist.init_process_group("nccl", device_id=device)

    total = torch.ones(1, device=device)
    dist.all_reduce(total)  # every rank must call it; the result is the number of processes

    # Reached only when all went well: after an exception the process should die, so that torchrun ends the others.
    dist.destroy_process_group()
    return total.item()


if __name__ == "__main__":
    main()
