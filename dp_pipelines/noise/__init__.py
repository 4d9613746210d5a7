"""Laws, tables and samplers of the noise that is added to a statistic before anyone may see it.

In: a law and a number of draws. Out: whole numbers, as int64. Holds: the law of a draw is within 2**-100 (total
variation) of the stated law; draws never repeat after a fork or a pickle, because there is no generator state.
docs/proofs/noise.md has the proofs. Not covered: how much noise is needed (dp_pipelines.planning), who may see it
(dp_pipelines.release), and an observer who shares the processor's caches.
"""

#     laws.py        each law once: probabilities, tails, standard deviation
#     entropy.py     the only source of randomness: words of the operating system's generator
#     interval_arithmetic.py  real numbers with a rigorous error bound, and the one lock on their precision
#     magnitudes.py  a law's tails as exact integers, for the tables
#     alias_tables.py  alias tables with exact integer weights
#     samplers.py    one word in, one integer draw out
#
# The names below describe laws; other packages need nothing else for planning. Code that draws imports `Sampler` from
# `dp_pipelines.noise.samplers`. For the sake of the tests it takes a source of words, so it is not part of the
# public API of `dp_pipelines`.

from dp_pipelines.noise.laws import FlooredLaplace, Law, RoundedGaussian

__all__ = ["FlooredLaplace", "Law", "RoundedGaussian"]
