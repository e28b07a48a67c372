from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.datasets import Dataset
from coterie.datasets._arrays import floats, labels, read_npz
from coterie.errors import DataError


def arrays(folder: Path | None = None, *, path: str) -> Dataset:
    """Your own data: an .npz file with the arrays x_train, y_train, x_test and y_test.

    Bytes are scaled to [0, 1], other numbers kept. Samples [N, H, W] get a channel, [N, H, W, C] with C = 1, 3 or 4
    become [N, C, H, W] unless the second dimension is 1, 3 or 4 already; anything else stays as it is. There is one
    class more than the largest label. A relative path is looked for in the data folder, then where you are.
    """
    file = _find(folder, path)
    raw = read_npz(file)
    name = file.stem
    train_y, test_y = labels(name, raw.train_y), labels(name, raw.test_y)
    train_x, test_x = floats(name, _with_channels(raw.train_x)), floats(name, _with_channels(raw.test_x))
    classes = 1 + max(int(y.max()) for y in (train_y, test_y) if len(y)) if len(train_y) + len(test_y) else 1
    return Dataset(name, train_x, train_y, test_x, test_y, classes)


def _find(folder: Path | None, path: str) -> Path:
    wanted = Path(path).expanduser()
    tried = [*([folder.expanduser() / wanted] if folder is not None else []), Path.cwd() / wanted]
    for file in tried:
        if file.is_file():
            return file
    cure = "Check the path; a relative one is looked for in --data-dir or COTERIE_DATA, then in the current folder."
    raise DataError("no such data file", expected="an .npz file", got=path, cure=cure)


def _with_channels(x: NDArray[Any]) -> NDArray[Any]:
    colours = (1, 3, 4)
    if x.ndim == 3:
        return x[:, np.newaxis]
    if x.ndim == 4 and x.shape[-1] in colours and x.shape[1] not in colours:
        return np.moveaxis(x, -1, 1)
    return x
