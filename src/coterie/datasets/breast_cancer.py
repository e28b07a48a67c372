from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coterie.datasets import Dataset
from coterie.datasets._arrays import floats, labels
from coterie.datasets._shipped import shipped
from coterie.datasets._split import stratified

Floats = NDArray[np.float64]
Rescaling = Literal["standard", "range", "robust", "length", "none"]
SCALINGS: dict[Rescaling, Callable[[Floats], tuple[Floats, Floats]]] = {
    "standard": lambda x: (x.mean(0), x.std(0)),
    "range": lambda x: (x.min(0), np.ptp(x, 0)),
    "robust": lambda x: (np.median(x, 0), np.subtract(*np.percentile(x, (75, 25), 0))),
}
"""What is taken off each measurement of the training part, and what it is divided by."""


def breast_cancer(folder: Path | None = None, *, test_share: float = 0.2, scaling: Rescaling = "standard") -> Dataset:
    """569 tumours by 30 measurements, malignant (0) or benign (1), that come with scikit-learn: no download.

    Each measurement is scaled as the training part says: `standard` by mean and standard deviation, `range` to lie
    between 0 and 1, `robust` by median and quartiles; `length` divides each sample by its own length instead, and
    `none` leaves all as it is. The test part is drawn once for all, the same share of both classes, whatever the seed
    of the experiment.

    Reference: Wolberg et al., Breast Cancer Wisconsin (Diagnostic), UCI Machine Learning Repository, 1995
    """
    x, y = shipped("breast_cancer.csv", "load_breast_cancer", skip=1)
    train, test = stratified(y, test_share, "breast_cancer")
    if scaling in SCALINGS:
        least, width = SCALINGS[scaling](x[train])
        x = (x - least) / width
    elif scaling == "length":
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    name = "breast_cancer"
    return Dataset(
        name, floats(name, x[train]), labels(name, y[train]), floats(name, x[test]), labels(name, y[test]), 2
    )
