import { readdir, readFile } from 'node:fs/promises';
import { parser } from '@prometheus-io/lezer-promql';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { parse } from 'yaml';
import { version } from '../../src/floor/version.ts';
import { recordGauges } from '../../src/metrics/gauges.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { type Scrape, scrape } from './scrape.ts';

const backends = [
  { name: 'queues in PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'queues in Redis', redis: inject('redis') }] : []),
];

describe.each(backends)('a scrape ($name)', ({ redis }) => {
  let scene: Scene;
  let worker: Awaited<ReturnType<typeof startMirror>>;
  let metricsPort: number;
  let web: Scrape;
  let own: Scrape;
  const size = 600_000;
  const uploaded = Date.now() - 7_200_000;

  beforeAll(async () => {
    const environment = { SCRUB_CYCLE: '90d', DRILL_INTERVAL: '7d', METRICS_TAGS: 'client,tier-2' };
    scene = await newScene({ redis, role: 'web', environment });
    metricsPort = await freePort();
    worker = await startMirror(
      { ...scene.ground, environment: { ...scene.ground.environment, METRICS_PORT: String(metricsPort) } },
      scene.library,
      'worker',
    );
    await scene.mirror.quiet();
    const broken = await scene.upload({ content: { seed: 'cut', size } });
    await scene.admin.addFault({ endpoint: 'media', assetId: broken, cutAfter: 200_000, times: 1 });
    for (const seed of ['a', 'b']) await scene.upload({ uploadDate: uploaded, content: { seed, size } });
    await scene.upload({ status: 'unavailable' });
    await scene.film({ content: { seed: 'film', size } });
    const unreadable = await scene.upload();
    await scene.admin.addFault({ endpoint: 'asset', assetId: unreadable, status: 200, body: { asset: 'none' } });
    await scene.admin.expireTokens();
    await scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, {
      syncInterval: '2h',
      tags: { client: 'Acme "Ltd"', secret: 'not in METRICS_TAGS' },
    });
    await scene.resync();
    await until('everything to come to rest', async () => {
      const { assets, outstanding, syncs } = await scene.mirror.api('GET', '/status');
      return assets.total === 6 && outstanding.assets + outstanding.sidecars + syncs.waiting + syncs.running === 0;
    });
    const { id: drill } = await scene.mirror.api('POST', '/drills');
    await until('the drill', async () => (await scene.mirror.api('GET', `/drills/${drill}`)).finishedAt !== null);
    own = await scrape(`http://127.0.0.1:${metricsPort}`);
    web = await until('the records to be read again', async () => {
      const found = await scrape(scene.ground.publicUrl);
      const isRead = found.value('asset_mirror_assets{state="mirrored"}') === 4;
      // The last jobs end after what they have written.
      const isIdle = found.by('asset_mirror_queue_jobs', 'state').active === 0;
      return isRead && isIdle && found.names.has('asset_mirror_drill_passed') && found;
    });
  });
  afterAll(async () => {
    await worker?.stop();
    await scene?.close();
  });

  test('a scrape of the web role shows gauges of the database and the queues', () => {
    expect(web.contentType).toContain('text/plain');
    expect(web.by('asset_mirror_connections', 'status')).toEqual({ active: 1, paused: 0, disconnected: 0 });
    expect(web.by('asset_mirror_assets', 'state')).toMatchObject({ mirrored: 4, unavailable: 1, failed: 1, gone: 0 });
    const lag = web.value(`asset_mirror_sync_lag_seconds{connection="${scene.connectionId}"}`)!;
    expect(lag).toBeGreaterThan(0);
    expect(lag).toBeLessThan(120);
    // Of this connection, and not the default.
    expect(web.value(`asset_mirror_sync_interval_seconds{connection="${scene.connectionId}"}`)).toBe(7200);
    // Tags that METRICS_TAGS does not name are not shown.
    expect(web.text).toContain(
      `asset_mirror_connection_info{connection="${scene.connectionId}",tag_client="Acme \\"Ltd\\"",tag_tier_2=""} 1\n`,
    );
    expect(web.text).not.toContain('not in METRICS_TAGS');
    expect(web.by('asset_mirror_queue_jobs', 'queue')).toEqual({
      syncs: expect.any(Number),
      assets: expect.any(Number),
    });
    expect(web.by('asset_mirror_queue_jobs', 'state')).toMatchObject({ waiting: 0, active: 0 });
    expect(web.by('asset_mirror_queue_oldest_seconds', 'queue')).toEqual({ syncs: 0, assets: 0 });
    expect(web.by('asset_mirror_dependency_up', 'dependency')).toEqual({ database: 1, queue: 1, bucket: 1 });
    expect(web.value('asset_mirror_stored_bytes')).toBe(4 * size);
    expect(web.by('asset_mirror_build_info', 'version')).toEqual({ [version]: 1 });
  });

  test('a scrape of a worker shows its own counters on its own port, and no shared gauges', async () => {
    expect(own.by('asset_mirror_assets_total', 'result')).toMatchObject({ mirrored: 4, unavailable: 1, failed: 1 });
    expect(own.value('asset_mirror_transfer_seconds_count')).toBe(4);
    const { done, failed } = own.by('asset_mirror_syncs_total', 'result');
    expect([done! > 0, failed]).toEqual([true, 0]);
    expect(own.value('asset_mirror_freshness_seconds_count')).toBe(4);
    expect(own.value('asset_mirror_freshness_seconds_bucket{le="3600"}')).toBe(0);
    expect(own.value('asset_mirror_freshness_seconds_bucket{le="21600"}')).toBe(2);
    expect(own.by('asset_mirror_dependency_up', 'dependency')).toEqual({ database: 1, queue: 1, bucket: 1 });
    expect(own.value('process_resident_memory_bytes')).toBeGreaterThan(1e6);
    for (const name of ['asset_mirror_assets', 'asset_mirror_connections', 'asset_mirror_sync_lag_seconds']) {
      expect(own.names).not.toContain(name);
    }
    for (const path of ['healthz', 'readyz']) {
      expect((await fetch(`http://127.0.0.1:${metricsPort}/${path}`)).status).toBe(200);
    }
    expect((await fetch(`http://127.0.0.1:${metricsPort}/api/status`)).status).toBe(404);
  });

  test('a scrape counts the same bytes and requests as the library', async () => {
    const links = ['media', 'mp4', 'thumbnail'];
    const entries = await scene.admin.requests();
    const bytes = entries
      .filter(({ endpoint }) => links.includes(endpoint!))
      .reduce((sum, entry) => sum + entry.bytes, 0);
    const downloaded = own.value('asset_mirror_bytes_total')!;
    // Bytes in transit at the interruption are sent, but not received.
    expect(downloaded).toBeGreaterThan(4 * size);
    expect(downloaded).toBeLessThanOrEqual(bytes);
    expect(own.value('asset_mirror_resumed_bytes_total')).toBeGreaterThan(0);
    expect(own.value('asset_mirror_resumed_bytes_total')).toBeLessThanOrEqual(200_000);

    const counted: Record<string, number> = {};
    for (const { endpoint } of entries) {
      const name = links.includes(endpoint!) ? 'link' : endpoint!;
      if (name !== 'authorize') counted[name] = (counted[name] ?? 0) + 1;
    }
    const seen = [own, web].map((found) => found.by('asset_mirror_library_requests_total', 'endpoint'));
    const both = Object.fromEntries(
      Object.keys(counted).map((name) => [name, (seen[0]![name] ?? 0) + (seen[1]![name] ?? 0)]),
    );
    expect(both).toEqual(counted);
    expect(own.by('asset_mirror_library_requests_total', 'status')).toMatchObject({
      200: expect.any(Number),
      206: 1,
      401: 1,
    });
    expect(own.by('asset_mirror_token_refreshes_total', 'result')).toEqual({
      refreshed: 1,
      refused: 0,
      unanswered: 0,
      failed: 0,
    });
  });

  test('a scrape names no person, token or link', () => {
    for (const { text } of [web, own]) {
      expect(text).not.toMatch(/svc[a-z]_|:\/\/|@/);
      expect(text).not.toContain(scene.library.users[0]!.name);
    }
  });

  test('a scrape has every metric that alerts and dashboards use', async () => {
    const shown = new Set([...web.names, ...own.names]);
    const expressions = [...(await alertExpressions()), ...(await dashboardExpressions())];
    expect(expressions.length).toBeGreaterThan(30);
    for (const expression of expressions) {
      const names = metricsIn(expression);
      expect(names.length, expression).toBeGreaterThan(0);
      for (const name of names) expect(shown, `${name} in: ${expression}`).toContain(name);
    }
    // And lists the values of each label, so that no alert waits for a value that does not exist.
    for (const [name, label, value] of equalities(expressions)) {
      if (label === 'job') continue;
      const values = Object.keys({ ...web.by(name, label), ...own.by(name, label) });
      expect(values, `${name}{${label}="${value}"}`).toContain(value);
    }
  });
});

test('a scrape lacks only the gauges of the database while the database is not available', {
  tags: 'slow',
}, async () => {
  const scene = await newScene({ role: 'web' });
  try {
    const { store } = scene.mirror.service.context;
    await store.close();
    // A scrape reuses the last check, which is the one of the start, for 30 s.
    await until('a failed check', async () => (await fetch(`${scene.ground.publicUrl}/readyz`)).status === 503);
    const found = await scrape(scene.ground.publicUrl);
    expect(found.by('asset_mirror_dependency_up', 'dependency')).toMatchObject({ database: 0 });
    expect(found.names).not.toContain('asset_mirror_assets');
    expect(found.value('asset_mirror_stored_bytes')).toBeUndefined();
    expect(found.names).toContain('asset_mirror_bytes_total');
    await scrape(scene.ground.publicUrl);
    const failures = scene.mirror.lines.filter(({ event }) => event === 'metrics.gauges_failed');
    expect(failures.map(({ level, of }) => `${level} ${of}`).sort()).toEqual(['warn drills', 'warn records']);
  } finally {
    await scene.close().catch(() => {});
  }
});

test('docs/reference/metrics.md lists each metric, and no other', async () => {
  const docs = await readFile(new URL('../../docs/reference/metrics.md', import.meta.url), 'utf8');
  const documented = (pattern: RegExp) => [...new Set([...docs.matchAll(pattern)].map(([, name]) => name!))].sort();
  const metrics = createMetrics();
  recordGauges({ metrics, metricsTags: [] } as never);
  const names = metrics.registry.getMetricsAsArray().map(({ name }) => name);
  expect(documented(/`(asset_mirror_\w+)/g)).toEqual([...names, 'asset_mirror_dependency_up'].sort());
});

async function alertExpressions(): Promise<string[]> {
  const directory = new URL('../../ops/prometheus/', import.meta.url);
  const files = (await readdir(directory)).filter((name) => /^[^.]+\.yml$/.test(name));
  const expressions: string[] = [];
  for (const file of files) {
    const { groups } = parse(await readFile(new URL(file, directory), 'utf8'));
    for (const { rules } of groups) {
      for (const rule of rules) {
        expect(rule).toMatchObject({
          alert: expect.stringMatching(/^AssetMirror[A-Z]/),
          labels: { severity: expect.stringMatching(/^(critical|warning)$/) },
          annotations: { summary: expect.any(String), description: expect.any(String) },
        });
        expressions.push(rule.expr);
      }
    }
  }
  return expressions;
}

/** The expression with values for Grafana's variables. */
async function dashboardExpressions(): Promise<string[]> {
  const directory = new URL('../../ops/grafana/', import.meta.url);
  const expressions: string[] = [];
  for (const file of await readdir(directory)) {
    const { panels, templating } = JSON.parse(await readFile(new URL(file, directory), 'utf8'));
    expect(new Set(panels.map(({ id }: { id: number }) => id)).size).toBe(panels.length);
    const variables = templating.list.map(({ name }: { name: string }) => name);
    for (const { type, title, targets } of panels) {
      if (type !== 'row') expect(targets, title).not.toEqual([]);
      for (const { expr } of targets ?? []) {
        const filled = expr.replaceAll('$__rate_interval', '5m').replaceAll(/\$(\w+)/g, (_: string, name: string) => {
          expect(variables).toContain(name);
          return '.*';
        });
        expressions.push(filled);
      }
    }
  }
  return expressions;
}

/** The names of the metrics in a PromQL expression. @throws if it does not parse */
function metricsIn(expression: string): string[] {
  const names: string[] = [];
  parser.parse(expression).iterate({
    enter(node) {
      if (node.type.isError) throw new Error(`not PromQL at ${node.from}: ${expression}`);
      if (node.name === 'VectorSelector') {
        names.push(expression.slice(node.from, node.node.getChild('Identifier')!.to));
      }
    },
  });
  return names;
}

/** Each `name{label="value"}`. */
function equalities(expressions: string[]): [string, string, string][] {
  return expressions.flatMap((expression) =>
    [...expression.matchAll(/(\w+)\{(\w+)(=~?|!=)"([^"]*)"\}/g)].flatMap(([, name, label, operator, values]) =>
      operator === '=' ? [[name!, label!, values!] as [string, string, string]] : [],
    ),
  );
}
