"""How credit is given: one small file per algorithm. Importing this loads no torch."""

from interplay.algorithms.algorithm import Algorithm, Independent, SamplingPlan, Tree, known, lookup, make, register

__all__ = ["Algorithm", "Independent", "SamplingPlan", "Tree", "known", "lookup", "make", "register"]
