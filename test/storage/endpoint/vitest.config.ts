import { defineConfig } from 'vitest/config';

/** The storage tests alone, against the server in STORAGE_CONFORMANCE (see main.ts). */
export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ['endpoint.ts'],
    // The slow ones, too.
    strictTags: false,
    // For tests of what is held in memory.
    execArgv: ['--expose-gc'],
    testTimeout: 300_000,
    hookTimeout: 400_000,
  },
});
