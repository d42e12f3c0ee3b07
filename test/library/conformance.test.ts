import { expect, it } from 'vitest';
import { MUTATIONS } from '../conformance/mutations.ts';
import { run } from '../conformance/run.ts';
import { CHECKS } from '../conformance/sections/index.ts';
import { openWorld } from '../conformance/world.ts';
import { startTestLibrary } from '../support/library.ts';

const redirectUri = 'http://localhost:8080/oauth/callback';

it('the library passes every conformance check', { tags: 'slow' }, async () => {
  const { library } = await startTestLibrary({ autoConsent: false, transcodeDelay: 60_000, transcriptDelay: 60_000 });
  const { apiUrl: api, appUrl: app, adminUrl } = library;
  const world = await openWorld({ api, app, admin: adminUrl!, redirectUri, profile: '/profile', scan: 2000 });
  try {
    const outcomes = await run(world, CHECKS);
    expect(outcomes.filter(({ outcome }) => outcome !== 'passed')).toEqual([]);
  } finally {
    await world.close();
    await library.close();
  }
});

it('every conformance check has a mutation that it detects (mutations.test.ts)', () => {
  const tried = new Set(MUTATIONS.map(({ check }) => check));
  expect(CHECKS.map(({ id }) => id).filter((id) => !tried.has(id))).toEqual([]);
});
