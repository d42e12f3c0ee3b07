import { setTimeout as sleep } from 'node:timers/promises';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { Answer } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { counted, harmless, number, paint, print, printError, printJson } from '../output.ts';

interface DrillVerbOptions {
  sample?: number;
  json?: boolean;
}

const pollMs = 500;

/** Starts a restore drill, waits for it, and prints its report. Returns 1 if it failed. */
export async function drill(api: ApiClient, { sample, json }: DrillVerbOptions): Promise<number> {
  const { id } = await api.startDrill({ sample });
  let said: string | undefined;
  for (;;) {
    const run = await api.drill(id);
    if (run.status === 'passed' || run.status === 'failed') {
      if (json) printJson(run);
      else {
        print(describe(run));
        print(paint('dim', `In the dashboard: ${await api.page(`/drills/${id}`)}`));
      }
      return run.status === 'passed' ? 0 : 1;
    }
    const note = run.error ? `trying again: ${harmless(run.error)}` : `The drill is ${run.status} …`;
    if (!json && note !== said) printError(note);
    said = note;
    await sleep(pollMs);
  }
}

function describe(run: Answer<'drill'>): string {
  const { report, recovery, failures } = run;
  const head = run.status === 'passed' ? paint('green', 'The drill passed.') : paint('red', 'The drill failed.');
  if (!report || !recovery) return `${head} It could not run: ${harmless(run.error ?? 'unknown')}`;
  const { restored, sample, secrets, loss } = report;
  const lines = [
    head,
    ...failures.map(({ text }) => `  ${paint('red', '!')} ${text}`),
    ...loss.examples.map(({ key, code, since }) => `    ${code}  ${harmless(key)}  ${paint('dim', `since ${since}`)}`),
    ...[...sample.damaged, ...sample.unreadable].map(
      ({ key, text }) => `    ${harmless(key)}  ${paint('dim', harmless(text))}`,
    ),
    ...secrets.unreadable.map(({ name, reason }) => `    ${harmless(name)}  ${paint('dim', harmless(reason))}`),
    '',
    `Restored:   ${counted(restored.assets, 'asset')} in ${formatDuration(recovery.recordsMs)}`,
    `Compared:   ${counted(loss.compared, 'asset')}${loss.inProgress > 0 ? `, ${number(loss.inProgress)} changed during the drill` : ''}`,
    `Read:       ${counted(sample.assets, 'asset')} (${formatBytes(sample.bytes)}) in ${formatDuration(sample.ms)}${sample.versions > 0 ? `, and ${counted(sample.versions, 'superseded file')}` : ''}`,
    `All media:  ${formatBytes(recovery.mediaBytes)}${recovery.mediaMs === null ? '' : `, about ${formatDuration(recovery.mediaMs)} at that rate`}`,
    `Decrypted:  ${number(secrets.checked - secrets.unreadable.length)} of ${number(secrets.checked)} tokens and secrets`,
    `Lost:       ${run.lost ? `${counted(run.lost, 'record')}, changes since ${run.oldestLoss}` : 'nothing'}`,
    `Report:     ${run.key}`,
  ];
  return lines.join('\n');
}
