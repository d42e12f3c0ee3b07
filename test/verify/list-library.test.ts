import { afterAll, beforeAll, expect, test } from 'vitest';
import { listLibrary } from '../../src/verify/list-library.ts';
import { newStage, type Stage } from '../support/stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

test('a verification says that the library was not compared if nobody has connected', async () => {
  const problems = await listLibrary(
    { store: stage.store, queues: { offerSyncs: async () => {} } },
    { connectionId: null, known: {}, onRequested: async () => {}, signal: new AbortController().signal },
  );
  const reason = { code: 'library_not_compared', connectionId: null, status: 'not_connected' };
  expect(problems).toMatchObject([{ mark: '!', reason }]);
});

test('the report of a young mirror begins with its database, and knows nothing of a library that nobody connects', async () => {
  const { texts, onlyInLibrary, verification } = await stage.mirror.api('GET', '/assurance');
  expect(Date.parse(verification.results.since)).toBeGreaterThan(Date.now() - 3_600_000);
  expect(onlyInLibrary.ok).toBe(false);
  expect(texts.onlyInLibrary).toMatch(/^Nothing is known/);
});
