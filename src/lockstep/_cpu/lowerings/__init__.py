"""Lowerings: other operations for XLA's CPU backend in place of those that it computes slowly.

A program means the same with them as without, up to rounding; only shapes that were measured faster are rewritten, and
a lowering stays only while it gains 1.2 x on its own grid (`benchmarks/lowerings.py`).

    rewrite             applies them; the table of rules
    equations           what may be replaced, and the calls that take its place
    convolution         the canonical form of convolutions, in which their rules work
    foreign_convolutions, foreign_products    what oneDNN computes
    epilogues           biases and relus that oneDNN's convolutions compute along
    bias_gradients      sums that gradients of kernels compute along
    depthwise           depthwise convolutions and their kernel gradients
    covering_depthwise  the same where kernels are as large as images
    grouped             groups of several channels, and their kernel gradients
    kernel_gradients    of convolutions without groups, transposed ones too
    small_convolutions  few inputs, one output, 1x1
    small_pictures      kernels larger than the picture
    pooling             max and average pooling, and the gradient of max pooling
    pooled_relus        gradients of relus in front of max pooling
    average_pooling     counts of places in windows, and gradients
    variances           gradients of variances of large arrays
    loop_products       products in the body of a `lax.scan`, as recurrent layers have them
    products            products that sum over several leading axes, as the gradients of dense layers' kernels do
    batched_products    products of many pairs of matrices, as attention has them
    unrolled, packs     steps that are repeated for each part of an array, such as each moment
    unit_axes           arrays of more than four axes, without those of one element
    leading_sums        sums over leading axes, such as gradients of what a batch has in common
    arg_extremes        places of the largest of many values, as accuracies take them
    trigonometry        sines, cosines, tangents and their inverses
    row_updates         tables of which an optimizer changes some rows
    random_bits         threefry's bits, and masks and numbers made of them
    interpolation       pictures that are resized
    known_values        values that no input decides
    sorting             arrays that are sorted by one key
    resampling          pictures that are turned, zoomed, moved or sheared
"""

from __future__ import annotations
