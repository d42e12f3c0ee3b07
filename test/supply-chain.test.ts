import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';

const root = join(import.meta.dirname, '..');

interface Step {
  uses?: string;
  run?: string;
  with?: Record<string, unknown>;
}
interface Job {
  permissions?: Record<string, string>;
  steps: Step[];
}

const folder = join(root, '.github/workflows');
const workflows = readdirSync(folder).map((file) => {
  const text = readFileSync(join(folder, file), 'utf8');
  return { file, text, ...(parse(text) as { permissions: unknown; jobs: Record<string, Job> }) };
});

describe.each(workflows)('the workflow $file', ({ file, text, permissions, jobs }) => {
  test('the workflow $file uses actions by their commit, and names the version', () => {
    const uses = text.split('\n').filter((line) => /\buses:/.test(line));
    expect(uses.length).toBeGreaterThan(0);
    for (const line of uses) expect(line).toMatch(/uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  test('the workflow $file leaves no credentials behind a checkout', () => {
    for (const { steps } of Object.values(jobs)) {
      for (const { uses, with: options } of steps) {
        if (uses?.startsWith('actions/checkout@')) expect(options).toMatchObject({ 'persist-credentials': false });
      }
    }
  });

  test('the workflow $file may write only in jobs that run nothing of the repository', () => {
    expect(permissions).toEqual({ contents: 'read' });
    for (const [job, { permissions = {}, steps }] of Object.entries(jobs)) {
      const writes = Object.keys(permissions).filter((right) => permissions[right] === 'write');
      // CodeQL reads the sources and runs none of them.
      if (file === 'codeql.yml') expect(writes).toEqual(['security-events']);
      else if (writes.length > 0) {
        expect(job).toBe('publish');
        expect(steps.filter(({ uses }) => /checkout|build-push|setup-/.test(uses ?? ''))).toEqual([]);
      }
    }
  });
});

test('the published image is built on base images by digest', () => {
  const { build } = workflows.find(({ file }) => file === 'image.yml')!.jobs;
  const builds = build!.steps.filter(({ uses }) => uses?.startsWith('docker/build-push-action@'));
  expect(builds).toHaveLength(2);
  for (const { with: options } of builds) {
    expect(options?.['build-contexts']).toContain('steps.bases.outputs.contexts');
    expect(options?.['build-args']).toMatch(/^VERSION=\$\{\{ .+ \}\}\nREVISION=\$\{\{ github\.sha \}\}$/m);
  }
});

test('an image with a known and fixed vulnerability is not published', () => {
  const { build, publish } = workflows.find(({ file }) => file === 'image.yml')!.jobs;
  const index = (action: string) => build!.steps.findIndex(({ uses }) => uses?.startsWith(`${action}@`));
  const scan = build!.steps[index('anchore/scan-action')]!;
  const tried = build!.steps[index('docker/build-push-action')]!;
  expect(scan.with).toMatchObject({ image: tried.with!.tags, 'severity-cutoff': 'high', 'only-fixed': true });
  // By default, the step fails the build.
  expect(scan).not.toHaveProperty('continue-on-error');
  expect(scan.with).not.toHaveProperty('fail-build');
  expect(index('anchore/scan-action')).toBeLessThan(index('actions/upload-artifact'));
  expect(publish).toMatchObject({ needs: 'build' });
});

test('every package in package-lock.json has a hash', () => {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { integrity?: string }>;
  };
  const entries = Object.entries(packages).filter(([path]) => path !== '');
  expect(entries.length).toBeGreaterThan(300);
  const without = entries.filter(([, { integrity }]) => !integrity?.startsWith('sha512-'));
  expect(without.map(([path]) => path)).toEqual([]);
});

test('package.json allows or denies every install script, so that npm ci does not ask', () => {
  const read = (file: string) => JSON.parse(readFileSync(join(root, file), 'utf8'));
  const packages: Record<string, { hasInstallScript?: true }> = read('package-lock.json').packages;
  const withScript = Object.keys(packages).filter((path) => packages[path]!.hasInstallScript);
  const names = withScript.map((path) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
  expect(names.length).toBeGreaterThan(5);
  expect(Object.keys(read('package.json').allowScripts).sort()).toEqual([...new Set(names)].sort());
});
