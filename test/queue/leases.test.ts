import { afterAll, expect, test } from 'vitest';
import { Interrupted } from '../../src/floor/errors.ts';
import { Leases } from '../../src/queue/leases.ts';
import { newStage } from '../support/stage.ts';

const stage = await newStage();
afterAll(() => stage.close());

test('a lease that this process takes again stops the work of the earlier one', async () => {
  const leases = new Leases(stage.mirror.service.context);
  try {
    const { companyId, connectionId } = await stage.company();
    const [id] = (await stage.upload(companyId)) as [string];
    await stage.sync(connectionId);
    const take = async () => {
      await stage.query('UPDATE assets SET queued_at = now(), lease_until = NULL WHERE id = $1', [id]);
      return (await leases.take(id))!;
    };
    const earlier = await take();
    const later = await take();
    expect(earlier.signal.reason).toBeInstanceOf(Interrupted);
    await expect(earlier.fence()).rejects.toBeInstanceOf(Interrupted);
    earlier.forget();
    expect(leases.size).toBe(1);
    await later.fence();
  } finally {
    leases.close();
  }
});
