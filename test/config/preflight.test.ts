import { expect, test } from 'vitest';
import { refuseSamePort } from '../../src/config/preflight.ts';

test('METRICS_PORT must differ from PORT, unless the system chooses both', () => {
  expect(() => refuseSamePort(9000, 9000)).toThrow('METRICS_PORT is 9000, the same as PORT; expected another port');
  for (const [port, metricsPort] of [
    [9000, 9001],
    [9000, undefined],
    [0, 0],
  ] as const) {
    expect(() => refuseSamePort(port, metricsPort)).not.toThrow();
  }
});
