// Runs of the same recipe with different seeds, as one curve: the mean, with its 95% interval (Student's t).
import { num } from "viewer/parts.js";

const T = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093];

// [[place, …], …]: the places of the recipes that differ in nothing but seed and name. Recipes are flat tables of texts.
export function sameRecipe(recipes) {
  const groups = new Map();
  recipes.forEach((recipe, place) => {
    const { seed: _, name: __, ...rest } = recipe;
    const key = JSON.stringify(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
    groups.set(key, [...(groups.get(key) || []), place]);
  });
  return [...groups.values()];
}

// The mean of numbers and half the width of its interval. A single number has no interval.
export function estimate(values) {
  const count = values.length, mean = values.reduce((a, b) => a + b, 0) / count;
  if (count < 2) return { mean, half: null };
  const spread = Math.sqrt(values.reduce((a, v) => a + (v - mean) ** 2, 0) / (count - 1));
  return { mean, half: ((T[count - 2] ?? 2.09) * spread) / Math.sqrt(count) };
}

// One curve of several columns: a step has a value if all of them have one, so that the mean is always over the same runs.
export function meanCurve(columns) {
  const at = columns[0].map((_, i) => columns.map((c) => c[i])).map((row) => (row.every((v) => v !== null && v !== undefined) ? estimate(row) : null));
  return { values: at.map((e) => e && e.mean), low: at.map((e) => e && e.mean - e.half), high: at.map((e) => e && e.mean + e.half) };
}

export const written = ({ mean, half }) => (half === null ? num(mean) : `${num(mean)} ± ${num(half, 2)}`);
