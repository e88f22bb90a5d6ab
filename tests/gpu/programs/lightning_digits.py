# SPDX-License-Identifier: GPL-2.0-or-later
"""Lightning: scikit-learn's handwritten digits, in float16 with a scaler."""

import logging
import warnings

import lightning
import sklearn.datasets
import torch
from torch import nn

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
        self.losses = []

    def training_step(self, batch):
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


lightning.seed_everything(1, verbose=False)
data = sklearn.datasets.load_digits()
rows = torch.utils.data.TensorDataset(torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target))
model = Digits()
trainer = lightning.Trainer(max_epochs=5, accelerator="gpu", devices=1, precision="16-mixed", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=64, shuffle=True))
print("losses", *(f"{loss.item():.5f}" for loss in model.losses[::20]))
