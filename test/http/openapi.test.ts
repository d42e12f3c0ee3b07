import { readFile } from 'node:fs/promises';
import { Validator } from '@seriousme/openapi-schema-validator';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { leastRoles, type OperationId } from '../../src/operations/operators/permissions.ts';
import { contract } from '../support/contract.ts';
import { newStage, type Stage } from '../support/stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

test('the OpenAPI document is valid 3.1, needs no token, and has every schema that it refers to', {
  tags: 'slow',
}, async () => {
  const response = await fetch(`${stage.ground.publicUrl}/openapi.json`);
  expect(response.headers.get('content-type')).toMatch(/^application\/json/);
  const document = (await response.json()) as { openapi: string };
  expect(document.openapi).toBe('3.1.0');
  expect(await new Validator().validate(structuredClone(document))).toEqual({ valid: true });
  const text = JSON.stringify(document);
  const { schemas } = (document as never as { components: { schemas: Record<string, unknown> } }).components;
  const named = new Set([...text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)].map(([, name]) => name!));
  expect([...named].sort()).toEqual(Object.keys(schemas).sort());
  expect([...named].filter((name) => name.endsWith('Input'))).toEqual([]);
});

test('each tag of a route is described, and each described tag has routes', async () => {
  const { document } = await contract(stage.ground.publicUrl);
  const routes = Object.values(document.paths).flatMap((methods) => Object.values(methods)) as never as {
    tags: string[];
  }[];
  const { tags } = document as never as { tags: { name: string }[] };
  expect([...new Set(routes.flatMap((route) => route.tags))].sort()).toEqual(tags.map(({ name }) => name).sort());
});

test('each route has an operationId, a summary and its answers, and is in docs/reference/api.md', async () => {
  const { document } = await contract(stage.ground.publicUrl);
  const docs = await readFile('docs/reference/api.md', 'utf8');
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, ...(operation as object) })),
  ) as { path: string; method: string; operationId: string; summary: string; responses: object }[];
  expect(new Set(operations.map(({ operationId }) => operationId)).size).toBe(operations.length);
  for (const { path, method, summary, responses, operationId } of operations) {
    expect(summary, operationId).toMatch(/\w/);
    const statuses = Object.keys(responses);
    expect(statuses, operationId).toContain('5XX');
    expect(statuses, operationId).not.toContain('4XX');
    if (!path.startsWith('/api/')) continue;
    expect(statuses, operationId).toEqual(expect.arrayContaining(['401', '429']));
    const isForAll = leastRoles[operationId as OperationId] === 'viewer';
    // A search for spoken words needs another permission than the list.
    const mayRefuse =
      !isForAll || !['get', 'head'].includes(method) || ['listAssets', 'countAssets'].includes(operationId);
    expect(statuses.includes('403'), operationId).toBe(mayRefuse);
    expect(docs).toContain(`\`${method.toUpperCase()} ${path.replaceAll(/\{(\w+)\}/g, ':$1')}`);
  }
});

test('each operation lists exactly the refusals that it can have', async () => {
  const { document } = await contract(stage.ground.publicUrl);
  const statusesOf = (path: string, method: string) =>
    Object.keys(document.paths[path]![method]!.responses).filter((status) => status >= '400' && status !== '5XX');
  expect(statusesOf('/api/status', 'get')).toEqual(['401', '429']);
  expect(statusesOf('/api/events', 'get')).toEqual(['400', '401', '404', '429']);
  expect(statusesOf('/api/connections/{id}', 'get')).toEqual(['400', '401', '404', '414', '429']);
  const changes = ['400', '401', '403', '413', '415', '429'];
  expect(statusesOf('/api/settings', 'patch')).toEqual(changes);
  expect(statusesOf('/api/assets/{id}/retry', 'post')).toEqual([...changes, '404', '409', '414'].sort());
});

test('each time in the API is in ISO 8601, and `since` of a resync may also be in milliseconds', async () => {
  const { document } = await contract(stage.ground.publicUrl);
  const times: unknown[] = [];
  JSON.stringify(document, (name, value) => {
    const types = [value?.type, ...(value?.anyOf ?? []).map(({ type }: { type: string }) => type)].flat();
    const isTime = /^(at|since|until|highWaterMark)$|(At|Date|Until|Since)$/.test(name) && types.length > 0;
    if (isTime && types.some((type) => ['number', 'integer'].includes(type))) times.push(value);
    return value;
  });
  expect(times).toEqual([
    expect.objectContaining({
      anyOf: [expect.objectContaining({ format: 'date-time' }), expect.objectContaining({ type: 'integer' })],
    }),
  ]);
});

test('the OpenAPI document requires a body exactly where a request without one is refused', async () => {
  const { document } = await contract(stage.ground.publicUrl);
  const { connectionId } = await stage.company();
  const bodies = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods as Record<string, { requestBody?: { required: boolean } }>).flatMap(
      ([method, { requestBody }]) => (requestBody ? [{ path, method, required: requestBody.required }] : []),
    ),
  );
  expect(bodies.length).toBeGreaterThan(4);
  for (const { path, method, required } of bodies) {
    const { status } = await fetch(`${stage.ground.publicUrl}${path.replace('{id}', connectionId)}`, {
      method: method.toUpperCase(),
      headers: { authorization: 'Bearer the-token-of-the-operators' },
    });
    expect({ path, refused: status === 400 }).toEqual({ path, refused: required });
  }
});

test('every code of a problem is in docs/reference/api.md', async () => {
  const docs = await readFile('docs/reference/api.md', 'utf8');
  const { glob } = await import('node:fs/promises');
  const codes = new Set<string>();
  for await (const file of glob('src/{http,operations}/**/*.ts')) {
    const source = await readFile(file, 'utf8');
    for (const [, code] of source.matchAll(/new (?:Refused|Problem)\(\s*\d{3},\s*'(\w+)'/g)) codes.add(code!);
    for (const [, code] of source.matchAll(/^ {2}\d{3}: '([a-z_]+)',$/gm)) codes.add(code!);
    for (const [, code] of source.matchAll(/send\(\s*reply,\s*\d{3},\s*'(\w+)'/g)) codes.add(code!);
  }
  expect(codes.size).toBeGreaterThan(15);
  for (const code of codes) expect(docs).toContain(`\`${code}\``);
});
