import { globSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** Old words, each with the standard one: docs/glossary.md defines those of this project. */
const words: Record<string, string> = {
  'brakes?': 'held changes',
  'broken off|broke off|breaks off': 'interrupted',
  'gather(s|ed|ing)?': 'batch',
  'gates?': 'circuit breaker',
  'given way|gives way|outdated': 'superseded',
  ground: 'preflight',
  'happenings|story|stories': 'history',
  heard: 'listener',
  'lanes?': 'concurrently',
  'left out': 'skipped, omitted',
  'let in': 'unskipped',
  'looked at|looks at': 'checked',
  'mend(s|ed|ing)?': 'repair',
  pace: 'adaptive concurrency',
  'park(s|ed)?': 'delayed',
  room: 'space, width',
  'so many': 'maximum, number',
  told: 'entry, reported',
  'whoever|whichever': 'the one who does it',
};

const files = globSync(
  [
    'src/**/*.{ts,js}',
    'docs/**/*.md',
    'ops/**/*.{yml,yaml,json,sh}',
    'helm/**/*.{yaml,tpl,txt,md}',
    '*.md',
    '.env.example',
    '.ci/run',
    '*.{ts,mjs}',
  ],
  { exclude: ['src/library/**', '**/vendor/**'] },
);

test.each(Object.entries(words))('"%s" is written as: %s', (old, _standard) => {
  const pattern = new RegExp(`\\b(${old.replaceAll(' ', '\\s+')})\\b`, 'i');
  const found = files.flatMap((path) =>
    readFileSync(path, 'utf8')
      .split('\n')
      // camelCase and snake_case count as words.
      .filter((line) => pattern.test(line.replace(/([a-z0-9])(?=[A-Z])|_/g, '$1 ')))
      .map((line) => `${path}: ${line.trim()}`),
  );
  expect(files.length).toBeGreaterThan(300);
  expect(found).toEqual([]);
});
