from pathlib import Path

from coterie.datasets import Dataset
from coterie.datasets._arrays import floats, labels
from coterie.datasets._shipped import shipped
from coterie.datasets._split import stratified


def digits(folder: Path | None = None, *, test_share: float = 0.2) -> Dataset:
    """1,797 handwritten digits of 8×8 pixels that come with scikit-learn: no download.

    The test part is drawn once for all, the same share of every class, whatever the seed of the experiment.

    Reference: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998
    """
    table, y = shipped("digits.csv.gz", "load_digits")
    x = table.reshape(-1, 1, 8, 8) / 16
    train, test = stratified(y, test_share, "digits")
    parts = (
        floats("digits", x[train]),
        labels("digits", y[train]),
        floats("digits", x[test]),
        labels("digits", y[test]),
    )
    return Dataset("digits", *parts, classes=10)
