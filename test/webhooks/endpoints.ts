import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { expect } from 'vitest';
import type { Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { startReceiver } from './receiver.ts';

export type Receiver = Awaited<ReturnType<typeof startReceiver>>;

/** Webhook endpoints of the mirror of a scene. The scene may start later. */
export function endpointsOf(scene: () => Scene) {
  let pool: pg.Pool | undefined;
  const database = () => (pool ??= new pg.Pool({ connectionString: scene().ground.environment.DATABASE_URL, max: 2 }));
  const receivers: Receiver[] = [];
  /** Each secret that an answer has shown. */
  const secrets: string[] = [];

  const query = async (text: string, values: unknown[] = []) => (await database().query(text, values)).rows;
  const api = (method: string, path: string, body?: unknown) => scene().mirror.api(method, path, body);
  const webhook = async (id: string) =>
    (await api('GET', '/webhooks')).webhooks.find((one: { id: string }) => one.id === id);

  /** An endpoint that verifies each message by its secret, and its receiver. */
  async function add(values: object = {}) {
    const own: string[] = [];
    const receiver = await startReceiver(own);
    receivers.push(receiver);
    const { id, secret } = await api('POST', '/webhooks', { url: receiver.url, ...values });
    own.push(secret);
    secrets.push(secret);
    const refuse = () => expect(receiver.refused).toEqual([]);
    const kinds = () => receiver.received.map(({ type }) => type);
    return { id: id as string, receiver, own, refuse, kinds };
  }
  const remove = (...endpoints: { id: string }[]) =>
    Promise.all(endpoints.map(({ id }) => api('DELETE', `/webhooks/${id}`)));
  const saved = ({ id }: { id: string }) =>
    until('each message to be saved as delivered', async () => (await webhook(id)).waiting === 0);
  const arrived = ({ receiver }: { receiver: Receiver }, type: string, count = 1) =>
    until(`${count} of ${type}`, () => receiver.of(type).length >= count && receiver.of(type));

  /** Mirrors another file, and returns its id. */
  async function mirrored(asset: object = {}): Promise<string> {
    const id = await scene().upload({ content: { text: randomBytes(8).toString('hex') }, ...asset });
    await scene().resync({ mode: 'incremental' });
    await scene().mirror.assetIn(id, 'mirrored');
    return id;
  }

  async function close(): Promise<void> {
    await pool?.end();
    await scene()?.close();
    for (const receiver of receivers) await receiver.close();
  }

  return { add, api, arrived, close, mirrored, query, receivers, remove, saved, secrets, webhook };
}
