/** A variable that is no setting, and the setting that it resembles. */
export interface SimilarName {
  name: string;
  similar: string;
}

/** The variables that are probably misspelled settings: one or two letters differ, or upper and lower case. */
export function similarNames(names: readonly string[], settings: readonly string[]): SimilarName[] {
  const known = new Set(settings);
  return names
    .filter((name) => name.length >= 6 && !known.has(name))
    .flatMap((name) => {
      const distances = settings.map((similar) => ({ name, similar, letters: distance(name.toUpperCase(), similar) }));
      const [nearest] = distances.sort((a, b) => a.letters - b.letters);
      return nearest && nearest.letters <= Math.min(2, nearest.similar.length / 6)
        ? [{ name, similar: nearest.similar }]
        : [];
    });
}

/** The Levenshtein distance: how many letters must be added, removed or replaced. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (const [i, letter] of [...from].entries()) {
    const next = [i + 1];
    for (let j = 0; j < to.length; j++) {
      next.push(Math.min(row[j]! + (letter === to[j] ? 0 : 1), row[j + 1]! + 1, next[j]! + 1));
    }
    row = next;
  }
  return row[to.length]!;
}
