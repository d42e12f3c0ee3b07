import { expect, test } from 'vitest';
import { newScene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import type { Line } from './verifications.ts';

test('objects of an asset whose id is too long for a key, or not NFC, are recognized as its own', {
  tags: 'slow',
}, async () => {
  const scene = await newScene();
  try {
    for (const id of [`long-${'x'.repeat(250)}`, 'decomposed-e\u0301']) {
      await scene.film({ id });
      await scene.resync();
      await scene.mirror.quiet();
      await scene.checked();
      const { key } = (await scene.mirror.store.assets.get(id))!.media!;
      const stranger = `${key.slice(0, key.lastIndexOf('/'))}/beside.txt`;
      await scene.storage.put(stranger, 'what is this');
      const { id: runId } = await scene.mirror.api('POST', '/verify', { all: true });
      const run = await until('the verification to end', async () => {
        const run = await scene.mirror.api('GET', `/verify/${runId}?limit=1000`);
        return run.status === 'done' && run;
      });
      const differences = run.lines.filter(({ mark }: Line) => mark !== '=');
      expect(differences.map(({ mark, key }: Line) => `${mark} ${key}`)).toEqual([`+ ${stranger}`]);
      expect(run.lines.filter(({ key: at }: Line) => at?.startsWith(key))).toHaveLength(6);
      await scene.storage.remove(stranger);
    }
  } finally {
    await scene.close();
  }
});
