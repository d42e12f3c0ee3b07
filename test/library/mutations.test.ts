// @module-tag slow
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type BreakingProxy, startBreakingProxy } from '../conformance/breaking-proxy.ts';
import { MUTATIONS } from '../conformance/mutations/index.ts';
import { run } from '../conformance/run.ts';
import { CHECKS } from '../conformance/sections/index.ts';
import { openWorld, type World } from '../conformance/world.ts';
import { type Library, startTestLibrary } from '../support/library.ts';
import { freePort } from '../support/ports.ts';

describe('the conformance suite finds a library that breaks one rule:', () => {
  let front: BreakingProxy;
  let admin: BreakingProxy;
  let library: Library;
  let world: World;

  beforeAll(async () => {
    [front, admin] = [await startBreakingProxy(), await startBreakingProxy()];
    const port = await freePort();
    ({ library } = await startTestLibrary({ autoConsent: false, port, publicUrl: front.url }));
    front.lead(`http://127.0.0.1:${port}`);
    admin.lead(library.adminUrl!);
    world = await openWorld({
      api: front.url,
      app: front.url,
      admin: admin.url,
      redirectUri: 'http://localhost:8080/oauth/callback',
      profile: '/profile',
      scan: 2000,
    });
  });
  afterAll(async () => {
    await world?.close();
    await library?.close();
    await front.close();
    await admin.close();
  });

  it.each(MUTATIONS.map((mutation) => [mutation.breaks, mutation.check, mutation] as const))(
    'a library in which %s fails the check %s',
    async (_breaks, id, { fault, isAdmin }) => {
      const checks = CHECKS.filter((check) => check.id === id);
      const broken = isAdmin ? admin : front;
      broken.breakBy(await fault(world));
      const [found] = await run(world, checks);
      broken.breakBy({});
      world.forget();
      expect(found).toMatchObject({ id, outcome: 'failed' });
    },
  );

  it('the library passes every conformance check again after the mutations', async () => {
    const outcomes = await run(world, CHECKS);
    expect(outcomes.filter(({ outcome }) => outcome !== 'passed')).toEqual([]);
  });
});
