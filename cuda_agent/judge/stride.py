"""Strides that thin elements without falling in step with what repeats in them. Pure.

What repeats, repeats every 2, 3, 4, 8 or 512 elements: every second element of a transposed convolution may be zero.
"""

from functools import cache


def stride(length: int, most: int) -> int:
    """The step that leaves at most `most` of `length` elements: 1, or a prime."""
    step = -(-length // most)
    return 1 if step <= 1 else prime_from(step)


@cache
def prime_from(step: int) -> int:
    """The least prime from `step` on, and from 5 on."""
    step = max(5, step)
    while any(step % divisor == 0 for divisor in range(2, int(step**0.5) + 1)):
        step += 1
    return step
