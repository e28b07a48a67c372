"""Data and a model of one's own: how ill will a patient be in a year, asked of a table, with inputs of two kinds."""

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

import coterie


class Net(nn.Module):
    """Measurements as numbers, and the sex as one of two words."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.sex = nn.Embedding(2, 4)
        self.layers = nn.Sequential(nn.Linear(9 + 4, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, measured: Tensor, sex: Tensor) -> Tensor:
        """Called with the tensors of a sample by their names."""
        out: Tensor = self.layers(torch.cat([measured, self.sex(sex)], -1))
        return out


if __name__ == "__main__":
    table, illness = load_diabetes(return_X_y=True)
    samples = {
        "measured": (np.delete(table, 1, axis=1) * 20).astype(np.float32),
        "sex": (table[:, 1] > 0).astype(np.int64),
    }
    run = coterie.Experiment(
        dataset=(samples, ((illness - illness.mean()) / illness.std()).astype(np.float32)),
        model=Net,
        objective="squared_error",
        metrics=["error", "absolute_error"],
        partition="iid",
        nodes=5,
        rounds=20,
        topology="ring",
        methods=["isolation", "decavg"],
    ).run()
    print(run.table().select("method", "test_error", "test_absolute_error"))
