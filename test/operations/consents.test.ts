// @module-tag slow
import { afterEach, expect, test } from 'vitest';
import { finishConsents } from '../../src/operations/connections/consents.ts';
import { newBrowser } from '../support/browser.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
afterEach(() => stage?.close());

const userId = 'ada';
const tokens = async () => (await stage.query<{ tokens: string }>('SELECT tokens FROM consents'))[0]?.tokens;

/** A consent that the library made wait until its access token expired. Returns its sealed tokens. */
async function expiredConsent(): Promise<string> {
  await stage.admin.addUser({ id: userId, name: 'Ada', email: 'ada@example.com' });
  await stage.admin.addCompany({ id: 'acme', name: 'Acme', userIds: [userId] });
  await stage.admin.setFaults({ endpoint: 'me', retryAfter: 600, times: 1 });
  const browser = newBrowser();
  const { url } = await stage.mirror.api('POST', '/connect-links', {});
  const consent = (await browser.get(url)).headers.get('location');
  expect((await browser.visit(`${consent}&login_hint=${userId}`)).status).toBe(202);
  await stage.admin.expireTokens(userId);
  await stage.query('UPDATE consents SET access_expires_at = now()');
  return (await tokens())!;
}

/** Makes the database refuse new tokens of consents, until the function that this returns is called. */
async function refuseSaves(): Promise<() => Promise<void>> {
  await stage.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$`);
  await stage.query('CREATE TRIGGER refuse BEFORE UPDATE OF tokens ON consents FOR EACH ROW EXECUTE FUNCTION refuse()');
  await stage.ground.endWaits();
  await until('a save to fail', () => isLogged('no room'));
  return async () => {
    await stage.query('DROP TRIGGER refuse ON consents');
  };
}

const isLogged = (text: string) => stage.mirror.lines.some((line) => JSON.stringify(line).includes(text));

async function expectConnected(): Promise<void> {
  await until('the consent to end', async () => (await stage.rows('consents')) === 0);
  const { connections } = await stage.mirror.api('GET', '/connections');
  expect(connections).toMatchObject([{ user: { id: userId }, status: 'active' }]);
}

test('the refreshed tokens of a consent are saved as soon as the database takes them', async () => {
  stage = await newStage();
  await expiredConsent();
  const takeSaves = await refuseSaves();
  await takeSaves();
  await stage.ground.endWaits();
  await expectConnected();
});

test('a consent is not given up while another process cannot save its refreshed tokens', async () => {
  stage = await newStage();
  await expiredConsent();
  const takeSaves = await refuseSaves();
  const other = finishConsents(stage.mirror.service.context);
  try {
    await stage.ground.endWaits();
    await until('the refusal of the earlier token', () => isLogged('invalid_grant'));
    await takeSaves();
    await expectConnected();
  } finally {
    await other.stop();
  }
});

test.each(['30s', '0s'])(
  'a stop with a grace of %s waits until the refreshed tokens of a consent are saved',
  async (grace) => {
    stage = await newStage({ environment: { SHUTDOWN_GRACE: grace } });
    const before = await expiredConsent();
    await stage.admin.clearRequests();
    await stage.admin.setFaults({ endpoint: 'token', latency: 1000, times: 1 });
    await stage.ground.endWaits();
    await until('the refresh', async () => (await stage.admin.requests({ endpoint: 'token' })).length === 1);
    await stage.mirror.stop();
    expect(await tokens()).not.toBe(before);
  },
);
