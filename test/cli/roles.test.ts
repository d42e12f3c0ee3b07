import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { createApiClient } from '../../src/cli/client.ts';
import { RefusedByService } from '../../src/cli/failures.ts';
import { program } from '../../src/cli/program.ts';
import { hasRole } from '../../src/floor/roles.ts';
import { leastRoles, type OperationId } from '../../src/operations/operators/permissions.ts';
import { newScene, type Scene } from '../support/scene.ts';

let scene: Scene;
let asset: string;
const tokens: Record<string, string> = {};
let out: string;
beforeAll(async () => {
  out = await mkdtemp(join(tmpdir(), 'asset-mirror-report-'));
  scene = await newScene();
  asset = await scene.upload({ name: 'a.pdf' });
  await scene.resync();
  await scene.mirror.assetIn(asset, 'mirrored');
  const { operations } = scene.mirror.service;
  const admin = { subject: 'a', name: 'a', role: 'admin', method: 'admin_token' } as const;
  for (const role of ['viewer', 'operator'] as const) {
    tokens[role] = (await operations.createToken({ name: role, role }, admin)).token;
  }
});
afterAll(async () => {
  await scene?.close();
  if (out) await rm(out, { recursive: true, force: true });
});

/** They need no running service. */
const local = ['start', 'demo', 'library', 'doctor', 'rebuild', 'restore', 'export', 'attest', 'completion'];

/** Each other verb with arguments, and the operation that it needs most. */
const cases = (): Record<string, [words: string[], needs: OperationId]> => ({
  status: [[], 'getStatus'],
  connections: [[], 'listConnections'],
  assets: [[], 'listAssets'],
  explain: [[asset], 'getAsset'],
  versions: [[asset], 'listVersions'],
  syncs: [[], 'listSyncs'],
  events: [[], 'listEvents'],
  plan: [[scene.connectionId], 'plan'],
  'connect-link': [[], 'createConnectLink'],
  resync: [[scene.connectionId], 'resyncConnection'],
  retry: [[asset], 'retryAsset'],
  pause: [[scene.connectionId], 'pauseConnection'],
  resume: [[scene.connectionId], 'resumeConnection'],
  disconnect: [[scene.connectionId, '--yes'], 'disconnectConnection'],
  set: [[scene.connectionId, '--interval', '15m'], 'changeConnection'],
  removals: [[], 'listRemovals'],
  hold: [[asset], 'hold'],
  release: [[asset], 'release'],
  erase: [[asset, '--reason', 'a test', '--yes'], 'erase'],
  erasures: [[], 'listErasures'],
  verify: [[], 'verify'],
  drill: [['--sample', '1'], 'startDrill'],
  report: [['--month', '2026-01', '--out', out], 'getAssuranceReport'],
  'keys rotate': [[], 'rotateKeys'],
  'webhooks list': [[], 'listWebhooks'],
  'webhooks add': [['https://hooks.example.com'], 'addWebhook'],
  'webhooks set': [['none', '--disable'], 'changeWebhook'],
  'webhooks remove': [['none'], 'removeWebhook'],
  'webhooks deliveries': [['none'], 'listDeliveries'],
  'webhooks redeliver': [['none', 'message'], 'redeliver'],
  'webhooks test': [['none'], 'testWebhookOf'],
  whoami: [[], 'getMe'],
  logout: [[], 'getMe'],
  'tokens list': [[], 'listTokens'],
  'tokens add': [['another'], 'createToken'],
  'tokens revoke': [['another'], 'revokeToken'],
  'sessions list': [[], 'listSessions'],
  'sessions end': [['none'], 'endSession'],
  audit: [[], 'listAudit'],
});

function namesOf(command: Command, before = ''): string[] {
  return command.commands.flatMap((verb) => {
    const name = `${before}${verb.name()}`;
    return verb.commands.length > 0 ? namesOf(verb, `${name} `) : [name];
  });
}

test('each verb has its operation in this table', () => {
  // login has no token yet.
  expect([...Object.keys(cases()), ...local, 'login'].toSorted()).toEqual(
    namesOf(program({} as never, '1')).toSorted(),
  );
});

test.each(['viewer', 'operator'] as const)(
  'the role %s runs exactly the verbs whose operations it may call',
  { tags: 'slow' },
  async (role) => {
    vi.spyOn(process.stdout, 'write').mockReturnValue(true);
    const api = createApiClient({ url: scene.ground.publicUrl, token: tokens[role] });
    const verbs = {
      api: async () => api,
      credentials: async () => ({ api: async () => undefined, save: async () => '' }),
    };
    const wrong: string[] = [];
    for (const [name, [words, needs]] of Object.entries(cases())) {
      const app = program(verbs as never, '1').exitOverride();
      const error = await app.parseAsync(['node', 'asset-mirror', ...name.split(' '), ...words]).then(
        () => undefined,
        (reason) => reason,
      );
      const isRefused = error instanceof RefusedByService && error.problem.code === 'role_too_low';
      const isOther = error !== undefined && !(error instanceof RefusedByService);
      const least = leastRoles[needs];
      const isAllowed = hasRole({ role }, least === 'media' ? 'operator' : least);
      if (isOther || isRefused === isAllowed) wrong.push(`${name}: ${error}`);
    }
    vi.restoreAllMocks();
    process.exitCode = 0;
    expect(wrong).toEqual([]);
  },
);
