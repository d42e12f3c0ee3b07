import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: 'test/support/services.ts',
    // `npm test` leaves them out. A file is tagged by a comment: @module-tag.
    tags: [{ name: 'slow', description: 'Takes long, or tests a product of the release.' }],
    // Most tests wait most of the time.
    maxWorkers: 5,
    // For tests of what is held in memory.
    execArgv: ['--expose-gc'],
    // No test fails because the machine is slow; one that hangs does.
    testTimeout: 300_000,
    hookTimeout: 400_000,
    expect: { poll: { timeout: 180_000 } },
  },
});
