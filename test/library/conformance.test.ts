import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Broken, startBroken } from '../conformance/broken.ts';
import { MUTATIONS } from '../conformance/mutations.ts';
import { run } from '../conformance/run.ts';
import { CHECKS } from '../conformance/sections/index.ts';
import { openWorld, type World } from '../conformance/world.ts';
import { type Library, startTestLibrary } from '../support/library.ts';
import { freePort } from '../support/ports.ts';

const REDIRECT_URI = 'http://localhost:8080/oauth/callback';

describe('the library', () => {
  it('does what every section of the specification says', async () => {
    const { library } = await startTestLibrary({ autoConsent: false, transcodeDelay: 60_000, transcriptDelay: 60_000 });
    const { apiUrl: api, appUrl: app, adminUrl } = library;
    const options = { api, app, admin: adminUrl!, redirectUri: REDIRECT_URI, profile: '/profile', scan: 2000 };
    const world = await openWorld(options);
    try {
      const outcomes = await run(world, CHECKS);
      expect(outcomes.filter(({ outcome }) => outcome !== 'passed')).toEqual([]);
    } finally {
      await world.close();
      await library.close();
    }
  }, 120_000);
});

describe('a library that breaks one rule is found out:', () => {
  let front: Broken;
  let admin: Broken;
  let library: Library;
  let world: World;

  beforeAll(async () => {
    [front, admin] = [await startBroken(), await startBroken()];
    const port = await freePort();
    ({ library } = await startTestLibrary({ autoConsent: false, port, publicUrl: front.url }));
    front.lead(`http://127.0.0.1:${port}`);
    admin.lead(library.adminUrl!);
    world = await openWorld({
      api: front.url,
      app: front.url,
      admin: admin.url,
      redirectUri: REDIRECT_URI,
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
    '%s (%s)',
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

  it('mended, it does again what every section says', async () => {
    const outcomes = await run(world, CHECKS);
    expect(outcomes.filter(({ outcome }) => outcome !== 'passed')).toEqual([]);
  }, 120_000);

  it('there is such a library for every check', () => {
    const tried = new Set(MUTATIONS.map(({ check }) => check));
    expect(CHECKS.map(({ id }) => id).filter((id) => !tried.has(id))).toEqual([]);
  });
});
