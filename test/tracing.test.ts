// @module-tag slow
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { type Admin, startTestLibrary } from './support/library.ts';
import { grounds, newGround, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { newWire } from './support/wire.ts';

interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  attributes: Record<string, string>;
}

/** A collector, as far as OTLP/HTTP asks for one (opentelemetry.io/docs/specs/otlp, JSON encoding). */
async function startCollector() {
  let raw = '';
  const spans: Span[] = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    raw += JSON.stringify(request.headers) + body;
    for (const { resource, scopeSpans } of JSON.parse(body).resourceSpans) {
      expect(attributesOf(resource)).toMatchObject({
        'service.name': 'asset-mirror',
        'service.version': expect.any(String),
      });
      for (const { spans: found } of scopeSpans) {
        for (const span of found) spans.push({ ...span, attributes: attributesOf(span) });
      }
    }
    response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    raw: () => raw,
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const attributesOf = ({ attributes }: { attributes: { key: string; value: Record<string, unknown> }[] }) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, String(Object.values(value)[0])]));

async function addAssets(admin: Admin): Promise<string[]> {
  const ids: string[] = [];
  for (const seed of ['a', 'b', 'c']) {
    const content = { seed, size: 100_000 };
    const upload = { companyId: 'acme', name: 'file.bin', mimeType: 'application/octet-stream', content };
    const { id } = await admin.addAsset({ ...upload, assetType: 'documents', uploadDate: Date.UTC(2024, 1, 29) });
    ids.push(id);
  }
  return ids;
}

/** The span of a sync, all spans of its trace, and what was done and requested in the course of each. */
function traceOfSync(spans: Span[]) {
  const run = spans.find(({ name, attributes }) => name === 'sync' && attributes.connectionId)!;
  expect(run, [...new Set(spans.map(({ name }) => name))].join()).toBeDefined();
  const trace = spans.filter(({ traceId }) => traceId === run.traceId);
  const parents = new Map(trace.map((span) => [span.spanId, span.parentSpanId]));
  /** Whether a span was made in the course of another. */
  const within = ({ spanId }: Span, of: Span) => {
    for (let id: string | undefined = spanId; id !== undefined; id = parents.get(id)) if (id === of.spanId) return true;
    return false;
  };
  const addresses = (of: Span) =>
    trace.flatMap((span) => (within(span, of) && span.attributes['url.full'] ? [span.attributes['url.full']] : []));
  return { run, trace, within, addresses };
}

describe.each(grounds())('with a collector ($name)', (kind) => {
  test('a sync is one trace, from its listing to each object, without a link or token in it', async () => {
    const collector = await startCollector();
    const ground = await newGround({
      port: await freePort(),
      redis: kind.redis,
      s3: kind.s3,
      environment: { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url },
    });
    const { library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
    const wire = await newWire(library.apiUrl);
    const mirrors: Awaited<ReturnType<typeof spawnMirror>>[] = [];
    try {
      const behindWire = { ...library, apiUrl: wire.url };
      mirrors.push(
        ...(await Promise.all([spawnMirror(ground, behindWire, 'web'), spawnMirror(ground, behindWire, 'worker')])),
      );
      const [web, worker] = mirrors as [(typeof mirrors)[0], (typeof mirrors)[0]];
      await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
      const ids = await addAssets(admin);
      await admin.addFault({ endpoint: 'media', assetId: ids[0]!, status: 500, times: 1 });
      await web.connect();
      await web.quiet();
      // Unsent spans are sent before the end.
      expect(await worker.kill('SIGTERM'), worker.output()).toBe(0);
      expect(await web.kill('SIGTERM'), web.output()).toBe(0);

      const { run, trace, within, addresses } = traceOfSync(collector.spans);
      expect(addresses(run)).toContainEqual(expect.stringMatching(/\/api\/v1\/companies\/acme\/assets\?…$/));
      const name = (span: Span) => span.name;
      // A statement may serve several leases at once; the span of one of them has it.
      expect(trace.map(name)).toContainEqual(expect.stringMatching(/^pg\.query/));
      for (const id of ids) {
        const leases = trace.filter(({ name, attributes }) => name === 'asset' && attributes.assetId === id);
        expect(leases.length).toBe(id === ids[0] ? 2 : 1);
        for (const lease of leases) {
          expect(lease.attributes.syncId).toBe(run.attributes.syncId);
          expect(within(lease, run)).toBe(true);
          expect(addresses(lease)).toContainEqual(expect.stringMatching(new RegExp(`/api/v1/assets/${id}$`)));
          expect(addresses(lease)).toContainEqual(expect.stringMatching(new RegExp(`/media/${id}/original\\?…$`)));
        }
        const done = trace.filter((span) => within(span, leases.at(-1)!));
        expect(done.map(({ attributes }) => attributes.key)).toContain(`acme/_/${id}/file.bin`);
        if (kind.s3) expect(done.map(name)).toContain('S3.PutObject');
      }

      expect(wire.secrets.size).toBeGreaterThan(5);
      for (const secret of wire.secrets) expect(collector.raw()).not.toContain(secret);
      for (const secret of [
        library.clientSecret,
        ground.environment.ADMIN_TOKEN!,
        ground.environment.ENCRYPTION_KEYS!,
      ]) {
        expect(collector.raw()).not.toContain(secret);
      }
      expect(collector.raw()).not.toMatch(/signature=|svc[a-z]_\w/);
    } finally {
      for (const mirror of mirrors) await mirror.kill('SIGKILL');
      await wire.close();
      await library.close();
      await collector.close();
      await ground.clear();
    }
  });
});

test('no tracing library is loaded without a collector', async () => {
  const program = `
    const { registerHooks } = await import('node:module');
    const loaded = new Set();
    registerHooks({
      resolve(specifier, context, next) {
        const found = next(specifier, context);
        const name = /node_modules\\/((@[^/]+\\/)?[^/]+)\\/(?!.*node_modules)/.exec(found.url)?.[1];
        if (name) loaded.add(name);
        return found;
      },
    });
    await import('./src/service.ts');
    process.stdout.write(JSON.stringify([...loaded]));
    process.exit(0);`;
  const output = await new Promise<string>((resolve, reject) =>
    execFile(process.execPath, ['--input-type=module', '--eval', program], (error, stdout) =>
      error ? reject(error) : resolve(stdout),
    ),
  );
  const loaded: string[] = JSON.parse(output);
  expect(loaded).toEqual(expect.arrayContaining(['bullmq', 'undici', 'prom-client']));
  // Its API is loaded by others, and does nothing by itself.
  expect(loaded.filter((name) => /opentelemetry|otel/.test(name) && name !== '@opentelemetry/api')).toEqual([]);
});
