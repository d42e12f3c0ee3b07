import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { installed } from '../support/installed.ts';

const rules = 'ops/prometheus/alerts.yml';
const cases = 'ops/prometheus/alerts.test.yml';

const isThere = await installed('promtool');
const skipped = isThere ? '' : ' (skipped: promtool is not installed)';

test.skipIf(!isThere)(`each alert fires in its cases, and only there${skipped}`, { tags: 'slow' }, async () => {
  const promtool = (...args: string[]) => promisify(execFile)('promtool', args);
  await promtool('check', 'rules', rules);
  // Differences are on stdout, and the exit code is not 0.
  await promtool('test', 'rules', cases).catch(({ stdout }) => expect.unreachable(stdout));
});

test('each alert has a case in which it fires, and one in which it does not', async () => {
  const alerts = parse(await readFile(rules, 'utf8')).groups[0].rules.map(({ alert }: { alert: string }) => alert);
  const tested = parse(await readFile(cases, 'utf8')).tests.flatMap(
    (it: { alert_rule_test: { alertname: string; exp_alerts: object[] }[] }) => it.alert_rule_test,
  );
  const named = (fires: boolean) =>
    new Set(
      tested.flatMap((it: (typeof tested)[number]) => (it.exp_alerts.length > 0 === fires ? [it.alertname] : [])),
    );
  expect([...named(true)].sort()).toEqual([...alerts].sort());
  for (const alert of alerts) expect(named(false), alert).toContain(alert);
});

test('each alert links to a section of the runbook, and is in docs/operate/alerts.md', async () => {
  const table = await readFile('docs/operate/alerts.md', 'utf8');
  const { rules: alerts } = parse(await readFile(rules, 'utf8')).groups[0];
  expect(table.match(/^\| `AssetMirror/gm)).toHaveLength(alerts.length);
  for (const { alert, annotations } of alerts) {
    const [page, anchor] = annotations.runbook_url.split('#');
    // docs.test.ts checks that the section exists.
    expect(page, alert).toBe('https://github.com/asset-mirror/asset-mirror/blob/main/docs/operate/runbook.md');
    expect(table).toMatch(new RegExp(`^\\| \`${alert}\` .*\\(runbook\\.md#${anchor}\\)`, 'm'));
  }
});
