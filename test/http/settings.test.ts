import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newStage, type Stage } from '../support/stage.ts';
import { asking, problem } from './asking.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

const ask = asking(() => stage);

describe('settings', () => {
  const patch = (body: object) => ask('PATCH', '/api/settings', { body: JSON.stringify(body) });

  test('the bandwidth is that of the environment until it is set, and after it is removed', async () => {
    const { publicUrl } = stage.ground;
    const own = { bandwidth: null, bandwidthTimetable: null, from: 'BANDWIDTH_LIMIT', publicUrl };
    const set = { bandwidth: 20 * 2 ** 20, bandwidthTimetable: null, from: 'settings', publicUrl };
    expect((await ask('GET', '/api/settings')).body).toEqual(own);
    for (const bandwidth of ['20MiB/s', 20 * 2 ** 20]) {
      expect((await patch({ bandwidth })).body).toEqual(set);
      expect((await ask('GET', '/api/settings')).body).toEqual(set);
      expect((await patch({ bandwidth: null })).body).toEqual(own);
    }
    const timetable = '00:00-24:00 20MiB/s, else unlimited Europe/Berlin';
    expect((await patch({ bandwidth: ` ${timetable}  ` })).body).toEqual({ ...set, bandwidthTimetable: timetable });
    for (const bandwidth of ['unlimited', 'off'])
      expect((await patch({ bandwidth })).body).toEqual({ ...set, bandwidth: null });
    expect((await patch({ bandwidth: null })).body).toEqual(own);
  });

  test.each([['20MiB'], ['fast'], [0], [-5], [1.5], ['0B/s'], [true]])(
    'a bandwidth of %j is refused',
    async (bandwidth) => {
      expect(await patch({ bandwidth })).toMatchObject(
        problem(400, 'invalid_request', expect.stringMatching(/^bandwidth: expected .*a rate such as 20MiB\/s/)),
      );
    },
  );
});
