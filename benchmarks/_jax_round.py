"""A round of training and averaging in JAX, in a process of its own: started by `_contenders.py`, and told over a pipe.

It imports JAX and NumPy alone, so that it can run by another interpreter than PyTorch's.
"""

import importlib
import sys
import time
from typing import Any

import numpy as np

jax: Any = importlib.import_module("jax")
jnp: Any = importlib.import_module("jax.numpy")
lax: Any = importlib.import_module("jax.lax")


def dense(params: Any, x: Any) -> Any:
    """Linear layers with ReLU between."""
    x = x.reshape(len(x), -1)
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight.T + bias)
    weight, bias = params[-1]
    return x @ weight.T + bias


def convolutional(params: Any, x: Any) -> Any:
    """5×5 convolutions, each with ReLU and pooled, then linear layers: channels last, as the processor likes them."""
    while params[0][0].ndim == 4:
        (weight, bias), *params = params
        layout = lax.conv_dimension_numbers(x.shape, (5, 5, *weight.shape[1::-1]), ("NHWC", "HWIO", "NHWC"))
        x = lax.conv_general_dilated(x, weight.transpose(2, 3, 1, 0), (1, 1), "VALID", dimension_numbers=layout)
        x = jax.nn.relu(x + bias)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return dense(params, x.transpose(0, 3, 1, 2))


def program(apply: Any, lr: float, momentum: float, one_by_one: bool) -> Any:
    """The whole round: each node's steps of SGD, then everyone's mean with its neighbours."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        scores = jax.nn.log_softmax(apply(params, x))
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    def node(params: Any, where: Any, x: Any, y: Any) -> Any:
        def step(now: Any, batch: Any) -> Any:
            weights, moving = now
            pull = jax.grad(loss)(weights, x[batch], y[batch])
            moving = jax.tree.map(lambda m, g: momentum * m + g, moving, pull)
            return (jax.tree.map(lambda w, m: w - lr * m, weights, moving), moving), None

        still = jax.tree.map(jnp.zeros_like, params)
        return lax.scan(step, (params, still), where)[0][0]

    def round(params: Any, where: Any, near: Any, x: Any, y: Any) -> Any:
        if one_by_one:
            params = lax.map(lambda one: node(*one, x, y), (params, where))
        else:
            params = jax.vmap(node, (0, 0, None, None))(params, where, x, y)
        heard = 1 + near.shape[1]
        return jax.tree.map(lambda w: (w + sum(w[near[:, k]] for k in range(heard - 1))) / heard, params)

    return jax.jit(round, donate_argnums=0)


def main() -> None:
    given = np.load(sys.argv[1])
    x, y, near = (jnp.asarray(given[name]) for name in ("x", "y", "near"))
    count, nodes = int(given["tensors"]), len(given["near"])
    tensors = [np.repeat(given[f"tensor{i}"][None], nodes, 0) for i in range(count)]
    params = [(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(tensors[::2], tensors[1::2], strict=True)]
    apply = convolutional if tensors[0].ndim == 5 else dense
    round = program(apply, float(given["lr"]), float(given["momentum"]), tensors[0].ndim == 5)
    steps, size = int(given["steps"]), int(given["size"])
    rng = np.random.default_rng(0)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        where = np.take_along_axis(given["own"], rng.random(given["own"].shape).argsort(1), 1)
        params = jax.block_until_ready(round(params, where[:, : steps * size].reshape(nodes, steps, size), near, x, y))
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
