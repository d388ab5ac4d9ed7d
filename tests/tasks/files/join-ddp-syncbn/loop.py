model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(UNet()).to(device)
model = DDP(model, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for volume, mask in loader:  # a rank's number of volumes depends on the hospital
    optimizer.zero_grad()
    loss = dice_loss(model(volume.to(device)), mask.to(device))
    loss.backward()
    optimizer.step()
