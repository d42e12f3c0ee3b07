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

test('Assurance knows nothing of a library that nobody connects', async () => {
  const { questions, onlyInLibrary } = await stage.mirror.api('GET', '/assurance');
  expect(onlyInLibrary.ok).toBe(false);
  expect(questions).toContainEqual(
    expect.objectContaining({ code: 'onlyInLibrary', ok: false, text: expect.stringMatching(/^Nothing is known/) }),
  );
});
