from pathlib import Path

from coterie.datasets import Dataset
from coterie.datasets._arrays import floats, labels, read_npz, with_channels
from coterie.datasets._files import find_path


def arrays(folder: Path | None = None, *, path: str) -> Dataset:
    """Your own data: an .npz file with the arrays x_train, y_train, x_test and y_test.

    Bytes are scaled to [0, 1], other numbers kept. Samples [N, H, W] get a channel, [N, H, W, C] with C = 1, 3 or 4
    become [N, C, H, W] unless the second dimension is 1, 3 or 4 already; anything else stays as it is. There is one
    class more than the largest label. A relative path is looked for in the data folder, then where you are.
    """
    file = find_path(folder, path, "an .npz file")
    raw = read_npz(file)
    name = file.stem
    train_y, test_y = labels(name, raw.train_y), labels(name, raw.test_y)
    train_x, test_x = floats(name, with_channels(raw.train_x)), floats(name, with_channels(raw.test_x))
    classes = 1 + max(int(y.max()) for y in (train_y, test_y) if len(y)) if len(train_y) + len(test_y) else 1
    return Dataset(name, train_x, train_y, test_x, test_y, classes)
