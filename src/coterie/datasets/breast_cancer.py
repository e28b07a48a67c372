from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from coterie.datasets import Dataset
from coterie.datasets._arrays import floats, labels
from coterie.datasets._split import stratified


def breast_cancer(folder: Path | None = None, *, test_share: float = 0.2) -> Dataset:
    """569 tumours by 30 measurements, malignant (0) or benign (1), that come with scikit-learn: no download.

    Each measurement is standardised by its mean and standard deviation in the training part. The test part is drawn
    once for all, the same share of both classes, whatever the seed of the experiment.

    Reference: Wolberg et al., Breast Cancer Wisconsin (Diagnostic), UCI Machine Learning Repository, 1995
    """
    loaded = load_breast_cancer()
    y = loaded.target.astype(np.int64)
    train, test = stratified(y, test_share, "breast_cancer")
    x = (loaded.data - loaded.data[train].mean(0)) / loaded.data[train].std(0)
    name = "breast_cancer"
    return Dataset(
        name, floats(name, x[train]), labels(name, y[train]), floats(name, x[test]), labels(name, y[test]), 2
    )
