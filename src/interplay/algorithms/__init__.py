"""The training algorithms, one small file each. Importing this package does not load torch."""

from interplay.algorithms.algorithm import Algorithm, Independent, SamplingPlan, Tree, known, lookup, make, register

__all__ = ["Algorithm", "Independent", "SamplingPlan", "Tree", "known", "lookup", "make", "register"]
