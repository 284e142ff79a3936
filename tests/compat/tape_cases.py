"""Programs with tapes in plain Python, and what TensorFlow 2.15.1 gives for them in tape_expected.json.

The file needs no TensorFlow; whoever has it writes the expected values again by `python -m tests.compat.tape_cases`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EXPECTED = Path(__file__).with_name("tape_expected.json")


def plain(value: Any) -> Any:
    """Returns tensors in any structure as lists of numbers."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return np.asarray(value).tolist()


def programs(tf: Any, put: Callable[[str, Any], None]) -> None:
    """Runs the programs, and hands over what they compute."""
    x = tf.constant([1.0, 2.0, -3.0])
    v = tf.Variable(2.0)
    w = tf.Variable([0.5, -1.0, 2.0])
    with tf.GradientTape() as t:
        t.watch(x)
        y = tf.reduce_sum(tf.nn.relu(x * w) * v + tf.abs(x) * tf.stop_gradient(v))
    put("mixed", t.gradient(y, [x, v, w]))
    with tf.GradientTape(persistent=True) as t:
        t.watch(x)
        f = tf.floor(x * 1.5)
        r = tf.round(x)
        s = tf.sign(x)
        c = tf.math.ceil(x)
        m = tf.math.mod(x, 2.0)
        fd = tf.math.floordiv(x, 2.0)
        am = tf.argmax(x)
        ci = tf.cast(x, tf.int32)
        cl = tf.clip_by_value(x, -1.0, 1.0)
        mx = tf.reduce_max(tf.stack([x[0], x[0], x[1] - 1.0]))
        mm = tf.maximum(x, x)
        gt = tf.gather(x, [0, 0, 2])
        wh = tf.where(x > 0, x * x, x)
        sq = tf.sqrt(tf.abs(x))
        pw = tf.pow(x, 2.0)
        tk = tf.math.top_k(x, 2).values
    put("floor", [t.gradient(q, x) for q in (f, r, s, c, m, fd, cl)])
    put("ints", [t.gradient(q, x) for q in (am, ci)])
    put("picks", [t.gradient(q, x) for q in (mx, mm, gt, wh, sq, pw, tk)])
    put(
        "weights",
        t.gradient([wh, pw], x, output_gradients=[tf.constant([1.0, 2.0, 3.0]), tf.constant([0.0, 1.0, 0.0])]),
    )
    put("weights_scalar", t.gradient(pw, x, output_gradients=tf.constant([2.0, 0.5, 1.0])))
    put("sources_dict", t.gradient(pw, {"a": x, "b": [v]}))
    put("zeros", t.gradient(pw, [x, w], unconnected_gradients=tf.UnconnectedGradients.ZERO))
    put("zero_text", t.gradient(pw, [w], unconnected_gradients="zero"))
    put("of_itself", t.gradient(x, x))
    with tf.GradientTape(persistent=True) as t:
        t.watch(x)
        y2 = tf.tensordot(x, x, 0) * x
    put("jacobian", t.jacobian(y2, x))
    put("jacobian_none", t.jacobian(y2, [w, x])[0])
    b = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as t:
        t.watch(b)
        y3 = tf.stack([b[:, 0] * b[:, 1], b[:, 0] ** 2, b[:, 1]], 1)
    put("batch_jacobian", t.batch_jacobian(y3, b))
    with tf.GradientTape() as o:
        with tf.GradientTape() as i:
            y4 = v**4 * w[0]
        d = i.gradient(y4, v)
    put("second", [d, *o.gradient(d, [v, w])])
    with tf.GradientTape() as o:
        z = v * 3.0
        with tf.GradientTape() as i:
            i.watch(z)
            y5 = z**3
        d = i.gradient(y5, z)
        p = d * z
    put("second_inner", o.gradient(p, [v]))
    with tf.GradientTape(persistent=True) as t:
        a = v * v
        with t.stop_recording():
            bb = v * a
        cc = bb * v
    put("stopped", [t.gradient(q, v) for q in (a, bb, cc)])
    with tf.GradientTape() as t:
        q = v * v
        v.assign(5.0)
        q = q + v * 3.0
    put("assigned", t.gradient(q, v))
    v.assign(2.0)
    with tf.GradientTape(watch_accessed_variables=False) as t:
        t.watch(v)
        q = v * w
    put("chosen", t.gradient(q, [v, w]))
    put("watched", len(t.watched_variables()))
    f0 = tf.Variable(3.0, trainable=False)
    with tf.GradientTape() as t:
        q = f0 * v
    put("frozen", t.gradient(q, [f0, v]))

    @tf.custom_gradient
    def clip(x, lo):
        def grad(dy):
            return dy * 100.0, None

        return x * lo, grad

    with tf.GradientTape() as t:
        q = clip(v * 2.0, tf.constant(3.0)) * v
    put("custom", t.gradient(q, v))

    @tf.custom_gradient
    def withvar(x):
        def grad(dy, variables=None):
            return dy * 7.0, [dy * 11.0 for _ in variables]

        return x * v, grad

    k = tf.Variable(1.5)
    with tf.GradientTape() as t:
        q = withvar(k)
    put("custom_variables", t.gradient(q, [k, v]))
    with tf.GradientTape() as t:
        t.watch(x)
        i = tf.constant(0)
        acc = tf.constant(0.0)
        _, acc = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + x[i] ** 2 * v), (i, acc))
    put("loop", t.gradient(acc, [x, v]))
    with tf.GradientTape() as t:
        q = tf.cond(v > 1.0, lambda: v * v, lambda: v)
    put("cond", t.gradient(q, v))
    e = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.GradientTape() as t:
        q = tf.reduce_sum(tf.nn.embedding_lookup(e, [0, 2, 0]) * tf.constant([[1.0], [2.0], [3.0]]))
    put("embedding", t.gradient(q, e))
    cx = tf.complex(tf.constant(1.0), tf.constant(2.0))
    with tf.GradientTape() as t:
        t.watch(cx)
        q = tf.math.real(cx * cx * tf.complex(0.5, 1.5))
    put("complex_", [tf.math.real(g := t.gradient(q, cx)), tf.math.imag(g)])

    def pyf(a):
        return a * a * 3.0

    with tf.GradientTape() as t:
        q = tf.py_function(pyf, [v * 1.0], tf.float32)
    put("py_function", t.gradient(q, v))
    with tf.GradientTape() as t:
        q = tf.reduce_sum(
            tf.nn.softmax_cross_entropy_with_logits(labels=[[0.0, 1.0, 0.0]], logits=[w])
        ) + tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=[1.0, 0.0, 1.0], logits=w))
    put("entropy", t.gradient(q, w))
    with tf.GradientTape() as t:
        q = tf.reduce_logsumexp(w) + tf.reduce_prod(w) + tf.reduce_mean(tf.math.cumsum(w))
    put("reductions", t.gradient(q, w))
    t = tf.GradientTape(persistent=True)
    with t:
        a = v * v
    with t:
        bq = a * v
    put("again", t.gradient(bq, v))
    t = tf.GradientTape(persistent=True)
    with t:
        aq = v * v
        t.reset()
        bq = v * aq
    put("after_reset", [t.gradient(bq, v), t.gradient(aq, v)])
    im = tf.reshape(tf.range(16, dtype=tf.float32), [1, 4, 4, 1]) / 10.0
    kk = tf.Variable(tf.reshape(tf.range(4, dtype=tf.float32), [2, 2, 1, 1]))
    with tf.GradientTape() as t:
        q = tf.reduce_sum(tf.nn.max_pool2d(tf.nn.conv2d(im, kk, 1, "SAME"), 2, 2, "VALID") ** 2)
    put("conv", t.gradient(q, kk))
    ds = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0])
    tot = []
    for el in ds:
        with tf.GradientTape() as t:
            t.watch(el)
            q = el * el * v
        tot.append(t.gradient(q, [el, v]))
    put("dataset", tot)


def main() -> None:
    """Writes the expected values."""
    import tensorflow as tf

    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        dense = tf.nest.map_structure(
            lambda v: tf.convert_to_tensor(v) if isinstance(v, tf.IndexedSlices) else v, value
        )
        found[name] = plain(dense)

    programs(tf, put)
    EXPECTED.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{len(found)} results\n")


if __name__ == "__main__":
    main()
