"""A sweep: what the network and the spread of the data over it make of two rules.

Every combination is computed once and kept in `sweeps/networks`: run it again, with more networks or more seeds, and
only what is new is computed.
"""

import polars as pl

import coterie

if __name__ == "__main__":
    swept = coterie.Experiment(
        nodes=8,
        rounds=12,
        total=800,
        initialiser="common",
        partition="dirichlet",
        optimiser={"name": "adam", "lr": 0.005},
    ).sweep(
        {
            "topology": ["ring", {"name": "ws", "k": 4, "p": 0.2}],
            "partition.alpha": [0.1, 10.0],
            "rule": ["decavg", "dechw"],
        },
        out="sweeps/networks",
        seeds=range(2),
    )
    print(swept.pivot().markdown())

    cells = ["topology", "partition.alpha"]
    rules = swept.table().pivot("rule", index=cells, values="accuracy")
    print(rules.with_columns((pl.col("dechw") - pl.col("decavg")).alias("gain")).sort("gain"))
