import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: 'test/support/services.ts',
    // For tests of what is held in memory.
    execArgv: ['--expose-gc'],
    // Most of them wait most of the time.
    maxWorkers: 3,
    // No test fails because the machine is slow; one that hangs does.
    testTimeout: 120_000,
    hookTimeout: 180_000,
  },
});
