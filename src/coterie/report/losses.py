"""Curves of validation losses by epoch, of runs with the measures `epoch_loss`: their means, and where they jump."""

import polars as pl

from coterie.node.measures import EPOCHS

TURN = ["method", "seed", "round", "node"]


def mean_curves(measures: pl.DataFrame) -> pl.DataFrame:
    """The mean over nodes of each method and seed after each epoch: `method`, `seed`, `epoch`, `value`.

    A turn begins with the loss of a model that was handed on or merged, under the epoch that the turn before ended
    with: of the two, that of the trained model counts.
    """
    drawn = measures.filter(pl.col("measure") == EPOCHS[0])
    first = pl.col("epoch") == pl.col("epoch").min().over(TURN)
    trained = drawn.filter(~first | (pl.col("epoch") == 0))
    return trained.group_by("method", "seed", "epoch").agg(pl.col("value").mean()).sort("method", "seed", "epoch")


def last_losses(measures: pl.DataFrame) -> dict[int, float]:
    """The loss after the last epoch, mean over nodes, by seed; of one method."""
    ends = mean_curves(measures).group_by("seed", maintain_order=True).agg(pl.col("value").last())
    return dict(ends.iter_rows())


def jumps(measures: pl.DataFrame) -> dict[int, float]:
    """How far a node's loss jumps between two rounds on average, in starting losses, by seed: what merging changes."""
    drawn = measures.filter(pl.col("measure") == EPOCHS[0]).sort("seed", "node", "round", "epoch")
    ends = drawn.group_by("seed", "node", "round", maintain_order=True).agg(
        pl.col("value").first().alias("before"), pl.col("value").last().alias("after")
    )
    jump = (pl.col("before") - pl.col("after").shift(1)).abs().over("seed", "node")
    start = pl.col("before").first().over("seed", "node")
    found = ends.with_columns(jump=jump / start).drop_nulls("jump").group_by("seed").agg(pl.col("jump").mean())
    return dict(found.sort("seed").iter_rows())
