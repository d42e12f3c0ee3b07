import { styleText } from 'node:util';
import type { Outcome } from './run.ts';

type Style = Parameters<typeof styleText>[0];

const paint = (style: Style, text: string) => styleText(style, text, { stream: process.stdout });

const TITLES: Record<string, string> = {
  1: 'What the service does',
  2: 'Resources and their fields',
  3: 'States and transitions',
  4: 'Endpoints',
  9: 'Versioning',
};

export function line({ id, section, says, outcome, expected, found, why, ms }: Outcome): string {
  const mark = { passed: paint('green', '✓'), failed: paint('red', '✗'), 'not tried': paint('yellow', '–') }[outcome];
  const slow = ms > 2000 ? paint('dim', ` ${(ms / 1000).toFixed(1)} s`) : '';
  const head = `${mark} ${section.padEnd(4)}${says} ${paint('dim', id)}${slow}`;
  if (outcome === 'failed') {
    return `${head}\n       ${paint('bold', 'expected')} ${expected}\n       ${paint('bold', 'found   ')} ${found}`;
  }
  return outcome === 'not tried' ? `${head}\n       ${paint('yellow', 'not tried:')} ${why}` : head;
}

export function counts(outcomes: Outcome[]): Record<Outcome['outcome'], number> {
  const of = (outcome: Outcome['outcome']) => outcomes.filter((it) => it.outcome === outcome).length;
  return { passed: of('passed'), failed: of('failed'), 'not tried': of('not tried') };
}

export function summary(outcomes: Outcome[]): string {
  const observed = outcomes.flatMap(({ section, observed }) => observed.map((text) => `  ${section.padEnd(4)}${text}`));
  const left = [...new Set(observed)];
  const { passed, failed, 'not tried': notTried } = counts(outcomes);
  return [
    ...(left.length > 0 ? ['', paint('bold', 'What the specification leaves open, here'), ...left] : []),
    ...bySection(outcomes),
    '',
    [
      paint('green', `${passed} passed`),
      paint(failed > 0 ? 'red' : 'dim', `${failed} failed`),
      paint(notTried > 0 ? 'yellow' : 'dim', `${notTried} not tried`),
    ].join(', '),
  ].join('\n');
}

function bySection(outcomes: Outcome[]): string[] {
  const chapters = Map.groupBy(outcomes, ({ section }) => section.split('.')[0]!);
  const rows = [...chapters].toSorted(([a], [b]) => Number(a) - Number(b));
  return [
    '',
    paint('bold', 'Sections'),
    ...rows.map(([chapter, all]) => {
      const { passed, failed, 'not tried': notTried } = counts(all);
      const rest = [failed > 0 && `${failed} failed`, notTried > 0 && `${notTried} not tried`]
        .filter(Boolean)
        .join(', ');
      const title = (TITLES[chapter] ?? '').padEnd(28);
      return `  ${chapter}   ${title}${String(passed).padStart(3)} of ${all.length}${rest ? `   ${rest}` : ''}`;
    }),
  ];
}
