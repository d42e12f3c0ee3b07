import { defineConfig } from 'vitest/config';

/** Each takes minutes, or tests a product of the release. `npm test` leaves them out, `npm run test:all` and .ci/run do not. */
const slow = [
  'test/chaos.test.ts',
  'test/compose.test.ts',
  'test/helm.test.ts',
  'test/image.test.ts',
  'test/infrastructure.test.ts',
  'test/library/mutations.test.ts',
  'test/mirror/fault-table.test.ts',
  'test/mirror/removal/every-step.test.ts',
  'test/mirror/removal/killed.test.ts',
  'test/package.test.ts',
  'test/processes.test.ts',
  'test/redaction.test.ts',
  'test/rolling-restart.test.ts',
  'test/storage/conformance-variants.test.ts',
  'test/thirty-days.test.ts',
  'test/verify/restore.test.ts',
];

const options = {
  // For tests of what is held in memory.
  execArgv: ['--expose-gc'],
  // No test fails because the machine is slow; one that hangs does.
  testTimeout: 120_000,
  hookTimeout: 180_000,
  expect: { poll: { timeout: 60_000 } },
};

export default defineConfig({
  test: {
    // Once for both projects.
    globalSetup: 'test/support/services.ts',
    // Most of them wait most of the time.
    maxWorkers: 4,
    projects: [
      { test: { ...options, name: 'default', include: ['test/**/*.test.ts'], exclude: slow } },
      { test: { ...options, name: 'slow', include: slow } },
    ],
  },
});
