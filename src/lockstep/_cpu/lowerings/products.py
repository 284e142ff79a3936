from __future__ import annotations
import os, math
import jax
import jax.numpy as jnp
from jax import lax
from lockstep._cpu.lowerings.windows import isolate
from lockstep._cpu.lowerings.convolution import FLOATS

def product(lhs, rhs, *, dimension_numbers, precision=None, preferred_element_type=None, out_sharding=None):
    (lc, rc), (lb, rb) = dimension_numbers
    mode = os.environ.get("Z1", "")
    if lb or rb or not mode: return None
    if tuple(lc) != tuple(range(len(lc))) or tuple(rc) != tuple(range(len(rc))) : return None
    k = len(lc)
    if k == lhs.ndim or k == rhs.ndim: return None
    if lhs.ndim == rhs.ndim == 2: return None
    K = math.prod(lhs.shape[:k])
    M, N = math.prod(lhs.shape[k:]), math.prod(rhs.shape[k:])
    out = (*lhs.shape[k:], *rhs.shape[k:])
    def compute(a, b):
        a = a.reshape(K, M); b = b.reshape(K, N)
        if mode == "dot":
            r = lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision, preferred_element_type)
        elif mode == "keep":
            a = isolate(lambda a: a.T)(a)
            r = lax.dot_general(a, b, (((1,), (0,)), ((), ())), precision, preferred_element_type)
        elif mode == "small":
            if M <= N:
                r = lax.dot_general(isolate(lambda a: a.T)(a), b, (((1,), (0,)), ((), ())), precision, preferred_element_type)
            else:
                r = lax.dot_general(isolate(lambda b: b.T)(b), a, (((1,), (0,)), ((), ())), precision, preferred_element_type).T
        return r.reshape(out)
    return compute
