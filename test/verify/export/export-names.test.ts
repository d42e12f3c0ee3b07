import { expect, test } from 'vitest';
import { type NameParts, nameOf, UniqueNames, wrongTemplate } from '../../../src/verify/export/export-names.ts';

const parts: NameParts = {
  id: 'a1',
  name: 'Beach',
  filename: 'IMG_1.jpg',
  type: 'photography',
  company: 'Acme',
  companyId: 'c1',
  project: 'Summer/Winter',
  projectId: 'p1',
  uploadDate: Date.UTC(2026, 0, 5),
};

test.each<[string, Partial<NameParts>, string]>([
  ['{project}/{uploadDate:yyyy-MM}/{name}', {}, 'Summer_Winter/2026-01/Beach.jpg'],
  ['{company}/{project}/{name}', { project: null, projectId: null }, 'Acme/No project/Beach.jpg'],
  ['{project}/{name}', { project: null }, 'p1/Beach.jpg'],
  ['{uploadDate:dd.MM.yyyy} {name}', {}, '05.01.2026 Beach.jpg'],
  ['{uploadDate}/{id}', {}, '2026-01-05/a1.jpg'],
  ['{uploadDate}/{id}', { uploadDate: null }, 'No date/a1.jpg'],
  ['{name}', { name: 'film.mov', filename: 'film.mp4' }, 'film.mov.mp4'],
  ['{name}', { name: 'FILM.MP4', filename: 'film.mp4' }, 'FILM.MP4'],
  ['{name}', { name: null }, 'IMG_1.jpg'],
  ['{project}/{name}', { project: '..', name: '../../etc/passwd', filename: 'x' }, 'asset/.._.._etc_passwd'],
  ['{project}/{name}', { project: '.', name: 'a\0b\n', filename: 'x.txt' }, 'asset/ab.txt'],
  ['{type}/{name}', { type: null }, 'No type/Beach.jpg'],
  ['{project}/{name}', { project: 'A: Interviews' }, 'A_ Interviews/Beach.jpg'],
  ['fixed/{companyId}-{projectId}/{name}', {}, 'fixed/c1-p1/Beach.jpg'],
])('the template %s makes of %j the name %s', (template, changed, expected) => {
  expect(wrongTemplate(template)).toBeUndefined();
  expect(nameOf(template, { ...parts, ...changed })).toBe(expected);
});

test.each([
  ['{nothing}/{name}', '{nothing} is not a placeholder'],
  ['{name:yyyy}', '{name:yyyy} is not a placeholder'],
  ['{uploadDate:hh}/{name}', '{uploadDate:hh} is not a placeholder'],
  ['{name', 'not closed'],
  ['{project}', 'must end with'],
  ['{name}/x', 'must end with'],
  ['/{name}', 'must not begin with a slash'],
])('the template %s is refused: %s', (template, problem) => {
  expect(wrongTemplate(template)).toContain(problem);
});

test('no two files get the same name, also where case does not count, or a sidecar has the name of a file', () => {
  const unique = new UniqueNames();
  expect(unique.of('p/film.mp4', 'a', ['', '.vtt'])).toBe('p/film.mp4');
  expect(unique.of('p/FILM.mp4', 'b', ['', '.vtt'])).toBe('p/FILM (b).mp4');
  expect(unique.of('p/film.mp4.vtt', 'c', [''])).toBe('p/film.mp4 (c).vtt');
  expect(unique.of('p/film (b).mp4', 'd', [''])).toBe('p/film (b) (d).mp4');
  expect(unique.of('q/film.mp4', 'e', [''])).toBe('q/film.mp4');
  expect(unique.of('q/film.mp4', '../e', [''])).toBe('q/film (.._e).mp4');
  expect(unique.of('q/film.mp4', '../e', [''])).toBe('q/film (.._e 2).mp4');
  expect(unique.of('Q/other.mp4', 'x', [''])).toBe('q/other.mp4');
  expect(unique.of('q/film.mp4', 'i'.repeat(900), [''])).toMatch(/^q\/film \([\da-f]{16}\)\.mp4$/);
  expect(unique.of('manifest.csv', 'm', [''])).toBe('manifest (m).csv');
  const long = `${'n'.repeat(196)}.mp4`;
  expect(unique.of(long, 'f', [''])).toBe(long);
  expect(Buffer.byteLength(unique.of(long, 'g'.repeat(20), ['']))).toBeLessThanOrEqual(200);
});
